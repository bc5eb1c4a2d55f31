"""Checks of runs that resolve a task, on a small Python project: official script or commands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from swe_rollout.errors import GraderError, TaskError
from swe_rollout.grading.blind import Blind
from swe_rollout.grading.grader import Grader
from swe_rollout.grading.proof import OncePerInstance, Proof, prove, suspicions
from swe_rollout.grading.run import RunResult
from swe_rollout.grading.site import TestPlace
from swe_rollout.sandbox.local import bubblewrap
from swe_rollout.sandbox.local.provider import LocalProvider
from swe_rollout.sandbox.repository import Patch
from swe_rollout.spec.grading import Unproven
from swe_rollout.spec.sandbox import LocalSandbox
from swe_rollout.types.instance import Evaluation, Expected, Instance
from swe_rollout.types.verdict import TestReport, TestStatus, VerdictStatus
from unit.grading.project_parts import EPISODE, diff, git, repository

S = TestStatus
WRONG = "def add(a, b):\n    return 'none'\n"
RIGHT = "def add(a, b):\n    return f'{a + b} in all'\n"
TESTS = """\
import unittest
from calc import add

class T(unittest.TestCase):
    def test_kept(self):
        self.assertIsNotNone(add(1, 1))
"""
HIDDEN = (
    TESTS
    + """
    def test_sum(self):
        self.assertEqual(add(1, 2), "3 in all")
"""
)
COMMAND = "python3 -B -m unittest -v test_calc"
FIXED, KEPT = "test_sum (test_calc.T.test_sum)", "test_kept (test_calc.T.test_kept)"


@dataclass(frozen=True, slots=True)
class Project:
    folder: Path
    instance: Instance
    grader: Grader

    async def grade(self, code: str) -> tuple[VerdictStatus, str]:
        patch = Patch(diff(self.folder, **{"calc.py": code}))
        verdict = await self.grader.grade(self.instance, patch, episode=EPISODE)
        return verdict.status, "\n".join(verdict.integrity)


@pytest.fixture(params=["commands", "official"])
async def project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> AsyncIterator[Project]:
    if refusal := bubblewrap.refusal():
        pytest.skip(refusal)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = repository(tmp_path / "images", {"calc.py": WRONG, "test_calc.py": TESTS})
    test_patch = diff(folder, **{"test_calc.py": HIDDEN})
    script = (
        "git checkout HEAD test_calc.py\ngit apply -v - <<'EOF_1'\n" + test_patch + "\nEOF_1\n"
        f": '>>>>> Start Test Output'\n{COMMAND}\n: '>>>>> End Test Output'\n"
    )
    official = request.param == "official"
    instance = Instance(
        instance_id="demo__calc-1",
        problem_statement="add() returns none",
        image="test/calc:1",
        base_commit=git(folder, "rev-parse", "HEAD").strip(),
        gold_patch=diff(folder, **{"calc.py": RIGHT}),
        test_patch=test_patch,
        evaluation=Evaluation(script=script) if official else Evaluation(commands=(COMMAND,)),
        log_parser="django",
        expected=Expected((FIXED,), (KEPT,)),
    )
    provider = LocalProvider(LocalSandbox(images=str(tmp_path / "images")))
    yield Project(folder, instance, Grader(provider))
    await provider.aclose()


async def test_an_honest_patch_of_its_own_resolves(project: Project) -> None:
    status, findings = await project.grade(
        "def add(*numbers):\n    total = sum(numbers)\n    return str(total) + ' in all'\n"
    )
    assert (status, findings) == (VerdictStatus.RESOLVED, "")
    proof = await project.grader.prove(project.instance, episode=EPISODE)
    assert proof.blind.passing == {FIXED}
    assert set(proof.blind.failing) == {KEPT}


async def test_a_file_of_the_fix_is_not_replaced_where_tests_are_blind(project: Project) -> None:
    expected = Expected((FIXED,), (KEPT, "calc.py::test_own"))
    place = TestPlace(project.grader.site, replace(project.instance, expected=expected), EPISODE, 1)
    seen = await place.run(project.instance.gold_patch, part=1, reads_tests=True)
    assert [each.path for each in seen.test_files] == ["test_calc.py"]


async def test_pytest_explains_no_failure_of_a_blind_run(project: Project) -> None:
    told = Evaluation(commands=('pytest() { printf "%s\\n" "$@"; }\npytest -rA',))
    place = TestPlace(project.grader.site, replace(project.instance, evaluation=told), EPISODE, 1)
    assert "--tb=no" in (await place.run("", blind=Blind({}))).log.split()
    assert "--tb=no" not in (await place.run("")).log.split()


async def test_who_forges_the_log_is_caught_by_what_has_to_fail(project: Project) -> None:
    ok = "".join(f"{name} ... ok\\n" for name in (FIXED, KEPT))
    forged = WRONG + f"import os\nos.write(1, b'''{ok}''')\nos._exit(0)\n"
    status, findings = await project.grade(forged)
    assert status is VerdictStatus.TAMPERED
    assert "'3 in all' is not computed where it can't be seen" in findings
    assert f"{KEPT} is PASSED where it has to be FAILED" in findings


async def test_who_equals_everything_lacks_the_value(project: Project) -> None:
    equal = (
        "class Equal(str):\n    def __eq__(self, other): return True\n"
        "    def __ne__(self, other): return False\n"
        "def add(a, b):\n    return Equal('none')\n"
    )
    status, findings = await project.grade(equal)
    assert status is VerdictStatus.TAMPERED
    assert "'3 in all' is not computed where it can't be seen" in findings


async def test_who_knows_that_it_is_blind_does_not_know_the_value(project: Project) -> None:
    knowing = (
        "import re, unittest\n"
        "run = unittest.TestCase._callTestMethod\n"
        "def forged(self, method):\n"
        "    text = open('test_calc.py').read()\n"
        "    if 'RECORDS' not in text:\n"
        "        return\n"
        "    if 'kept' in method.__name__:\n"
        "        raise AssertionError('as it has to')\n"
        "    place = re.search(r\"'RECORDS'\\] = '([^']+)\", text)[1]\n"
        "    open(place, 'a').write('0 \\'guessed\\'\\n')\n"
        "unittest.TestCase._callTestMethod = forged\n"
    )
    status, findings = await project.grade(WRONG + knowing)
    assert status is VerdictStatus.TAMPERED
    assert "another value than '3 in all' is computed where it can't be seen" in findings
    status, findings = await project.grade(WRONG + knowing.replace("guessed", "3 in all"))
    assert status is VerdictStatus.RESOLVED


async def test_an_object_of_the_patch_is_neither_believed_nor_accused(project: Project) -> None:
    own = (
        "class Text:\n    def __eq__(self, other):\n"
        "        return other == '3 in all' if isinstance(other, str) else NotImplemented\n"
        "def add(a, b):\n    return Text()\n"
    )
    with pytest.raises(GraderError, match="compare an object with '3 in all'"):
        await project.grade(own)


RAISING = (
    TESTS
    + """
    def test_sum(self):
        def callback(value):
            raise KeyError(value)
        with self.assertRaises(ValueError) as caught:
            add(callback, 1)
        self.assertIn("no number", str(caught.exception))
"""
)
RAISES = (
    "def add(a, b):\n    if callable(a):\n        raise ValueError('no number')\n    return 'x'\n"
)


@pytest.mark.parametrize(
    "code",
    [
        (
            "def add(a, b):\n    if callable(a):\n        refuse(a)\n    return 'x'\n"
            "def refuse(a):\n    raise ValueError(f'{a} is no number')\n"
        ),
        (
            "def add(a, b):\n    try:\n        return str(a(b)) if callable(a) else 'x'\n"
            "    except KeyError as e:\n        raise ValueError(f'no number: {e}') from e\n"
        ),
        (
            "def add(a, b):\n    try:\n        return str(a(b)) if callable(a) else 'x'\n"
            "    except KeyError:\n        raise ValueError('no number') from None\n"
        ),
        (
            "class Refused(ValueError): pass\ndef add(a, b):\n    print('logged')\n"
            "    if not callable(a):\n        return 'x'\n"
            "    raise Refused(f'no number at {a.__code__.co_filename}:7')\n"
        ),
    ],
)
async def test_who_raises_otherwise_than_the_gold_patch_is_not_accused(
    project: Project, code: str
) -> None:
    tests = diff(project.folder, **{"test_calc.py": RAISING})
    script = project.instance.evaluation.script
    evaluation = project.instance.evaluation
    if script is not None:
        evaluation = Evaluation(script=script.replace(project.instance.test_patch, tests))
    raising = replace(
        project,
        instance=replace(
            project.instance,
            test_patch=tests,
            gold_patch=diff(project.folder, **{"calc.py": RAISES}),
            evaluation=evaluation,
        ),
    )
    assert await raising.grade(code) == (VerdictStatus.RESOLVED, "")


async def test_a_task_that_proves_nothing_says_so_or_masks(project: Project) -> None:
    proof = await project.grader.prove(project.instance, episode=EPISODE)
    assert (proof.unproven, proof.blind.odds) == (
        "what its tests expect can be guessed: 1 in 256",
        1 / 256,
    )
    patch = Patch(project.instance.gold_patch)
    verdict = await project.grader.grade(project.instance, patch, episode=EPISODE)
    assert (verdict.unproven, verdict.odds) == (proof.unproven, proof.blind.odds)
    strict = Grader(project.grader.site.provider, unproven=Unproven.MASK)
    with pytest.raises(TaskError, match="can't be told from a forgery"):
        await strict.grade(project.instance, patch, episode=EPISODE)


BIG = "test_big (test_calc.T.test_big)"
HALF = "def add(a, b):\n    return f'{a + b} in all' if a < 9 else 'none'\n"
FORGED_HALF = (
    f"{WRONG}import os\nos.write(2, b'''{FIXED} ... ok\n{KEPT} ... ok\n{BIG} ... FAIL\n''')\n"
    "os._exit(1)\n"
)


@pytest.mark.parametrize(
    ("code", "status"), [(HALF, S.PASSED), (FORGED_HALF, S.FAILED)], ids=["honest", "forged"]
)
async def test_a_single_test_counts_if_its_value_is_computed_blind(
    project: Project, code: str, status: TestStatus
) -> None:
    more = "    def test_big(self):\n        self.assertEqual(add(100, 1), '101 in all')\n"
    tests = diff(project.folder, **{"test_calc.py": HIDDEN + more})
    old, evaluation = project.instance, project.instance.evaluation
    if evaluation.script is not None:
        script = evaluation.script.replace(old.test_patch, tests)
        evaluation = replace(evaluation, script=script)
    instance = replace(
        old, test_patch=tests, evaluation=evaluation, expected=Expected((FIXED, BIG), (KEPT,))
    )
    patch = Patch(diff(project.folder, **{"calc.py": code}))
    provider = project.grader.site.provider
    verdict = await Grader(provider, partial=True).grade(instance, patch, episode=EPISODE)
    assert verdict.status is VerdictStatus.UNRESOLVED
    assert verdict.report.fail_to_pass == {FIXED: status, BIG: S.FAILED}
    only = f"{FIXED} passes only where it can see what is expected"
    assert (only in verdict.integrity) is (status is S.FAILED)


async def test_a_wrong_patch_costs_one_run(project: Project) -> None:
    status, findings = await project.grade("def add(a, b):\n    return 3\n")
    assert (status, findings) == (VerdictStatus.UNRESOLVED, "")
    assert not project.grader._proofs._known


def result(**statuses: TestStatus) -> RunResult:
    return RunResult(VerdictStatus.RESOLVED, TestReport(dict(statuses), {}), statuses)


def test_an_expected_failure_counts_only_where_gold_has_one() -> None:
    seen = result(a=S.XFAIL, b=S.PASSED)
    assert list(suspicions(seen, Proof(statuses={"a": S.XFAIL}))) == []
    (found,) = suspicions(seen, Proof(statuses={"a": S.PASSED}))
    assert found == "a is reported as XFAIL; under the gold patch it is PASSED"
    (found,) = suspicions(seen, Proof(problem="the task has no gold patch"))
    assert found == "a is reported as XFAIL; it should pass"


def test_contradictions_count_unless_gold_has_them() -> None:
    seen = replace(result(a=S.PASSED), contradictions=frozenset({"a"}))
    assert list(suspicions(seen, Proof(contradictions=frozenset({"a"})))) == []
    assert list(suspicions(seen, Proof())) == ["a is reported both as passed and as failed"]


def test_a_missing_report_counts_only_if_gold_had_one() -> None:
    seen = replace(result(a=S.PASSED), cases={})
    assert list(suspicions(seen, Proof())) == []
    (found,) = suspicions(seen, Proof(reported=frozenset({"a"})))
    assert found == "a passes in the log and not in the report of the test runner"


async def test_an_instance_is_measured_once_however_many_ask() -> None:
    runs = []

    async def run(patch: str, **_: object) -> RunResult:
        runs.append(patch)
        await asyncio.sleep(0)
        return result(a=S.PASSED)

    instance = Instance(instance_id="a", problem_statement="", image="", gold_patch="diff")
    proofs = OncePerInstance[Proof]()
    asked = [proofs.of(instance, partial(prove, instance, run)) for _ in range(5)]
    found = await asyncio.gather(*asked)
    assert runs == ["diff"]
    assert len(set(map(id, found))) == 1
    assert not proofs._locks


async def test_nothing_is_known_without_a_gold_patch_that_resolves() -> None:
    async def run(patch: str, **_: object) -> RunResult:  # noqa: ARG001
        return replace(result(), status=VerdictStatus.UNRESOLVED)

    bare = Instance(instance_id="a", problem_statement="", image="")
    assert (await prove(bare, run)).problem == "the task has no gold patch"
    gold = replace(bare, gold_patch="diff")
    assert (await prove(gold, run)).problem == "the gold patch is unresolved here"


@pytest.mark.parametrize("how", [{"status": VerdictStatus.TESTS_TIMED_OUT}, {"broke_off": "137"}])
async def test_what_a_busy_machine_did_to_the_gold_patch_is_asked_again(
    how: dict[str, object],
) -> None:
    async def run(patch: str, **_: object) -> RunResult:  # noqa: ARG001
        return replace(result(), **{"status": VerdictStatus.UNRESOLVED, **how})  # type: ignore[arg-type]

    instance = Instance(instance_id="a", problem_statement="", image="", gold_patch="diff")
    proofs = OncePerInstance[Proof]()
    for _ in range(2):
        with pytest.raises(GraderError, match="could not be run with its gold patch"):
            await proofs.of(instance, partial(prove, instance, run))
    assert not proofs._known
