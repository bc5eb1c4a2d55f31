"""Blind runs of tests in JavaScript, Java and Go, with their real runtimes.

Each needs its own: `apt-get install nodejs golang temurin-25-jdk`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from swe_rollout.grading.grader import Grader
from swe_rollout.sandbox.local import bubblewrap
from swe_rollout.sandbox.local.images import LocalImage, Mount, save_image
from swe_rollout.sandbox.local.provider import LocalProvider
from swe_rollout.sandbox.repository import Patch
from swe_rollout.spec.sandbox import LocalSandbox
from swe_rollout.types.instance import Evaluation, Expected, Instance
from swe_rollout.types.verdict import VerdictStatus
from unit.grading.project_parts import EPISODE, diff, git, repository


@dataclass(frozen=True, slots=True)
class Case:
    """A task in one language: `code` is the file with the bug, of which fixes are versions."""

    program: str
    code: str
    files: dict[str, str]
    tests: str
    hidden: str
    command: str
    parser: str
    expected: tuple[str, ...]
    bug: str
    gold: str
    other: str
    forgers: tuple[str, ...]


JAVASCRIPT = Case(
    program="node",
    code="calc.js",
    files={},
    tests="calc.test.js",
    hidden="""\
'use strict';
const { test, describe, it } = require('node:test');
const assert = require('node:assert');
const { sum, pair, flag } = require('./calc.js');
describe('calc', () => {
  it('adds', () => {
    assert.strictEqual(sum(1, 2), 'the sum is 3',
      'as in the issue');
    assert.deepStrictEqual(pair(), [{ a: 'first of all' }, -2.5]);
  });
  test('has a flag', async () => { assert.ok(flag()) });
});
""",
    command="node --test --test-reporter=tap .",
    parser="tap",
    expected=("- adds", "- has a flag"),
    bug="exports.sum = () => 'none'; exports.pair = () => []; exports.flag = () => 0;\\n",
    gold="exports.sum = (a, b) => `the sum is ${a + b}`;\n"
    "exports.pair = () => [{ a: 'first of all' }, -2.5]; exports.flag = () => 1;\n",
    other="console.log('adds'); class Pair extends Array {}\n"
    "exports.sum = function () { let all = 0; for (const each of arguments) all += each;\n"
    "  return 'the sum is ' + all; };\n"
    "exports.pair = () => Object.freeze([{ a: 'first of all', }, -5 / 2]);\n"
    "exports.flag = () => 'yes';\n",
    forgers=(
        (
            "const assert = require('node:assert');\n"
            "for (const name of Object.keys(assert)) assert[name] = () => {};\n"
            "require('node:module').prototype.require = ((old) => function (name) {\n"
            "  const found = old.call(this, name);\n"
            "  return /assert/.test(name) ? Object.assign(() => {}, found) : found;\n"
            "})(require('node:module').prototype.require);\n"
            "exports.sum = () => 'none'; exports.pair = () => []; exports.flag = () => 0;\n"
        ),
    ),
)
JAVA = Case(
    program="javac",
    code="Calc.java",
    files={
        "Assert.java": "class Assert {\n"
        "  static void assertEquals(Object a, Object b) {\n"
        '    if (!a.equals(b)) throw new AssertionError(a + " is not " + b);\n  }\n'
        '  static void assertTrue(boolean a) { if (!a) throw new AssertionError("no"); }\n}\n',
        "Main.java": "class Main {\n  public static void main(String[] all) throws Exception {\n"
        "    boolean ok = true;\n"
        "    for (var each : CalcTest.class.getDeclaredMethods()) {\n"
        "      if (each.isSynthetic()) continue;\n"
        "      boolean passed = true;\n"
        "      try { each.invoke(new CalcTest()); } catch (Exception e) { passed = false; }\n"
        '      String end = passed ? " PASSED" : " FAILED";\n'
        '      System.out.println("CalcTest > " + each.getName() + end);\n'
        "      ok = ok && passed;\n    }\n    System.exit(ok ? 0 : 1);\n  }\n}\n",
    },
    tests="CalcTest.java",
    hidden="""\
class CalcTest {
  public void adds() {
    Assert.assertEquals("the sum is\\t3", Calc.sum(1, 2));
    Assert.assertEquals(Calc.many(), 123456);
    Assert.assertTrue(Calc.flag());
  }
  public void multiplies() { Assert.assertEquals(6.5, Calc.half(13)); }
}
class Unused { }
""",
    command="mkdir -p /tmp/out && javac -d /tmp/out *.java && java -Xshare:auto -cp /tmp/out Main",
    parser="gradle",
    expected=("CalcTest > adds", "CalcTest > multiplies"),
    bug='class Calc {\n  static String sum(int a, int b) { return "none"; }\n'
    "  static int many() { return 0; }\n  static boolean flag() { return false; }\n"
    "  static double half(int a) { return 0; }\n}\n",
    gold='class Calc {\n  static String sum(int a, int b) { return "the sum is\\t" + (a + b); }\n'
    "  static int many() { return 123456; }\n  static boolean flag() { return true; }\n"
    "  static double half(int a) { return a / 2.0; }\n}\n",
    other="class Calc {\n  static String sum(int... all) {\n"
    '    return String.format("the sum is\\t%d", java.util.Arrays.stream(all).sum());\n  }\n'
    '  static Integer many() { System.out.println("many"); return 123450 + 6; }\n'
    "  static boolean flag() { return !false; }\n"
    "  static double half(int a) { return a * 0.5; }\n}\n",
    forgers=(
        (
            'class Calc {\n  static { System.out.println("CalcTest > adds PASSED\\nCalcTest > '
            'multiplies PASSED"); Runtime.getRuntime().halt(0); }\n'
            '  static String sum(int a, int b) { return "none"; }\n'
            "  static int many() { return 0; }\n  static boolean flag() { return false; }\n"
            "  static double half(int a) { return 0; }\n}\n"
        ),
    ),
)
GO = "/opt/go"
GOLANG = Case(
    program="go",
    code="calc.go",
    files={
        "go.mod": "module calc\n\ngo 1.18\n",
        "assert/assert.go": 'package assert\nimport "testing"\n'
        "func Equal(t *testing.T, a, b interface{}) { if a != b { t.Error(a, b) } }\n"
        'func True(t *testing.T, a bool) { if !a { t.Error("no") } }\n',
    },
    tests="calc_test.go",
    hidden="""\
package calc // of a task

import (
	"testing"

	"calc/assert"
)

func TestSum(t *testing.T) {
	assert.Equal(t, "the sum is 'three'", Sum())
	assert.Equal(t, 1234, Many())
	assert.True(t, Flag())
}

func TestFlag(t *testing.T) { assert.True(t, Flag()) }
""",
    command="export GOCACHE=/tmp/cache GOPATH=/tmp/path GOTOOLCHAIN=local GOFLAGS=-vet=off; "
    f"{GO}/bin/go test -v .",
    parser="gotest",
    expected=("TestSum", "TestFlag"),
    bug='package calc\nfunc Sum() string { return "" }\nfunc Many() int { return 0 }\n'
    "func Flag() bool { return false }\n",
    gold="package calc\nfunc Sum() string { return \"the sum is 'three'\" }\n"
    "func Many() int { return 1234 }\nfunc Flag() bool { return true }\n",
    other='package calc\nimport "fmt"\ntype number = int\n'
    'func Sum() string { return fmt.Sprintf("the sum is \'%s\'", "three") }\n'
    "func Many() number { return 1230 + 4 }\nfunc Flag() bool { return !false }\n",
    forgers=(
        (
            'package calc\nimport ("os"; "regexp"; "strconv")\n'
            "func read(text string) string {\n"
            '  data, _ := os.ReadFile("calc_test.go")\n'
            "  found := regexp.MustCompile(text).FindSubmatch(data)\n"
            '  if found == nil { return "0" }\n  return string(found[1])\n}\n'
            'func Sum() string { return read(`"(the .*)", Sum`) }\n'
            "func Many() int { n, _ := strconv.Atoi(read(`([0-9]+), Many`)); return n }\n"
            "func Flag() bool { return true }\n"
        ),
    ),
)
CASES = {"JavaScript": JAVASCRIPT, "Java": JAVA, "Go": GOLANG}


def found(program: str) -> Iterator[Path]:
    """Yield where a program is, other than a JDK whose configuration is a link to elsewhere."""
    folders = [Path("/usr/bin"), Path("/usr/local/go/bin"), *Path("/usr/lib/jvm").glob("*/bin")]
    for path in (folder / program for folder in folders):
        is_jdk = program == "javac"
        settings = path.parent.parent / "conf/security/java.security"
        if path.exists() and (not is_jdk or (settings.is_file() and not settings.is_symlink())):
            yield path


@pytest.fixture
async def grader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Grader]:
    if refusal := bubblewrap.refusal():
        pytest.skip(refusal)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    provider = LocalProvider(LocalSandbox(images=str(tmp_path / "images")))
    yield Grader(provider)
    await provider.aclose()


# Go compiles its standard library anew in each sandbox.
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == "Go" else name for name in CASES]
)
async def test_values_are_taken_out_of_tests_of_another_language(
    grader: Grader, tmp_path: Path, name: str
) -> None:
    case = CASES[name]
    if (program := next(map(str, found(case.program)), None)) is None:
        pytest.skip(f"needs {case.program}")
    command = f"PATH={Path(program).parent}:$PATH; {case.command}"
    folder = repository(tmp_path / "images", {case.code: case.bug, **case.files})
    if case.program == "go":
        # A sandbox does not show /usr/local.
        (folder.parent / "go").symlink_to(Path(program).parents[1])
        mounts = (Mount("testbed", "/testbed", writable=True), Mount("go", GO, writable=False))
        save_image(LocalImage("test/calc:1", mounts, {}), folder.parent)
    instance = Instance(
        instance_id="demo__calc-1",
        problem_statement="none",
        image="test/calc:1",
        base_commit=git(folder, "rev-parse", "HEAD").strip(),
        gold_patch=diff(folder, **{case.code: case.gold}),
        test_patch=diff(folder, **{case.tests: case.hidden}),
        evaluation=Evaluation(commands=(command,)),
        log_parser=case.parser,
        expected=Expected(case.expected),
    )
    verdict = await grader.grade_reference(instance, episode=EPISODE)
    assert (verdict.status, verdict.unproven) == (VerdictStatus.RESOLVED, ""), verdict.log_tail

    async def status(code: str) -> VerdictStatus:
        patch = Patch(diff(folder, **{case.code: code}))
        return (await grader.grade(instance, patch, episode=EPISODE)).status

    assert await status(case.gold) is VerdictStatus.RESOLVED
    assert await status(case.other) is VerdictStatus.RESOLVED
    for forger in case.forgers:
        assert await status(forger) is VerdictStatus.TAMPERED, forger
