"""What can be taken out of tests in other languages than Python."""

from __future__ import annotations

import asyncio
import re
import shutil
from pathlib import Path

import pytest
from tree_sitter import Node

from swe_rollout.grading.blind_files import BlindFile, TestFile, make_files, may_be_blind
from swe_rollout.grading.languages import syntax
from swe_rollout.grading.languages.literals import Literals
from swe_rollout.grading.languages.syntax import read_tests
from swe_rollout.grading.languages.table import language_of
from swe_rollout.grading.wants import Loose, Value
from swe_rollout.types.instance import Expected

JAVASCRIPT = "it('adds', async () => {{\n  {}\n}});\n"
GO = 'package a\n\nimport "a/assert"\n\nfunc TestA(t *testing.T) {{\n\t{}\n}}\n'
RUST = "#[test]\nfn adds() {{\n    {}\n}}\n"
JAVA = "class ATest {{\n  @Test void adds() {{\n    {}\n  }}\n}}\n"


def blind(path: str, text: str, *tests: str, base: str | None = None) -> BlindFile:
    (made,) = make_files([TestFile(path, text, base)], Expected(tests), "seed").values()
    return made


def wants(path: str, text: str) -> list[str]:
    language = language_of(path)
    assert language is not None
    return [str(hole.want) for test in read_tests(text, "", language) for hole in test.holes]


@pytest.mark.parametrize(
    ("check", "found"),
    [
        ("assert.strictEqual(f(), 'a\\n\\u00e9\\x41');", ["'a\\néA'"]),
        ("assert.deepStrictEqual(f(), [1, -2.5, { a: `b`, 'c': [] }], 'why');", None),
        ("expect(f()).toBe(0x10); expect(f()).toBe(1_000);", ["1000"]),
        ("await expect(f()).toEqual('a');", ["'a'"]),
        ("expect(f()).to.deep.equal({ a: 1 });", ["{'a': 1}"]),
        ("expect(f()).toContain('a'); expect(f()).to.include(2);", None),
        ("expect(f()).toBe(true); expect(f()).toBeNull();", ["True", "None"]),
        ("assert(f()); assert.ok(f(), 'why'); expect(f()).toBeFalsy();", None),
        ("expect(f()).not.toBe('a'); expect(f()).resolves.toBe('a');", []),
        ("expect(f()).toBe(`a${b}`); expect(f()).toBe(c);", []),
        ("expect(f()).toEqual({ ...a, b: 1 }); expect(f()).toEqual([a]);", []),
        ("assert.equal(f(), '1'); assert.equal(f(), null);", ["'1'"]),
        ("other(f(), 'a'); x = expect(f()).toBe('a');", []),
        ("if (a) { expect(f()).toBe('a'); }", []),
        ("expect(f()).toBe('\\q'); expect(f()).toBe('\\ud800');", []),
    ],
)
def test_checks_of_javascript(check: str, found: list[str] | None) -> None:
    shown = wants("a.test.js", JAVASCRIPT.format(check))
    assert shown == found if found is not None else shown
    assert wants("a.spec.ts", JAVASCRIPT.format(check)) == shown


@pytest.mark.parametrize(
    ("path", "text", "check", "found"),
    [
        ("a_test.go", GO, 'assert.Equal(t, "a\\tb", f(), "why %s", 1)', []),
        ("a_test.go", GO, 'assert.Equal(t, "a\\tb", f(), "why")', ["'a\\tb'"]),
        ("a_test.go", GO, "require.Equal(5, f())", ["5"]),
        ("a_test.go", GO, "assert.True(t, f()); assert.Nil(t, f())", ["a true value", "None"]),
        ("a_test.go", GO, "assert.Equal(t, g(), f()); assert.NotEqual(t, 1, f())", []),
        ("a_test.go", GO, 'if got != "a" { t.Errorf("%s", got) }', ["'a'"]),
        ("a_test.go", GO, "if got := f(); 5 != got { t.Helper(); t.Fail() }", ["5"]),
        ("a_test.go", GO, 'want := 2.5; if f() != want { t.Fatal(want, "!") }', ["2.5"]),
        ("a_test.go", GO, 'want := "a"; g(want); if f() != want { t.Fatal(want) }', []),
        ("a_test.go", GO, 'want := "a"; if f() != want { t.Fatal() }', []),
        ("a_test.go", GO, 'want, b := "a", 1; if f() != want { t.Fatal(want, b) }', []),
        ("a_test.go", GO, "if f() != true { t.Fail() }", ["True"]),
        ("a_test.go", GO, "b := 1; " + "if f() != b { t.Fail() };" * 5_000, []),
        (
            "a_test.go",
            GO,
            "if err != nil { t.Fatal(err) }; if !ok { t.Fail() }",
            ["None", "a true value"],
        ),
        (
            "a_test.go",
            GO,
            "if err == nil { t.Error() }; if f() { t.Error() }",
            ["another value than None", "a false value"],
        ),
        ("a_test.go", GO, "if f() != 1 { g() }; if f() != 1 { t.Fail() } else { g() }", []),
        ("a_test.go", GO, "if f() != 1 { t.Log() }; if f() > 1 { t.Fail() }", []),
        ("a.rs", RUST, 'assert_eq!(f(a, "b")[0], "a\\n\\u{e9}", "why {} {}", 1, 2);', ["'a\\né'"]),
        ("a.rs", RUST, "assert_eq!(-1.5f64, f()); assert_eq!(f(), 1_000u64)", ["-1.5", "1000"]),
        (
            "a.rs",
            RUST,
            "assert_eq!(f(), Some(vec![1, 2])); assert_eq!(f(), &[true]);",
            ["[1, 2]", "[True]"],
        ),
        (
            "a.rs",
            RUST,
            'assert_eq!(f(), "a".to_string()); assert_eq!(f(), Ok(String::from("b")));',
            ["'a'", "'b'"],
        ),
        (
            "a.rs",
            RUST,
            'assert!(f()); assert_eq!(f(), r#"a"b"#); assert_eq!(f(), false);',
            ["a true value", "'a\"b'", "False"],
        ),
        ("a.rs", RUST, "assert_eq!(f(), g()); assert_ne!(f(), 1); assert_eq!(f(), Err(1));", []),
        ("a.rs", RUST, "assert_eq!(3, f::<A, B<C>>()); assert_eq!(f::<A, 5, B>(), 4);", ["3", "4"]),
        ("a.rs", RUST, 'assert_eq!(f(), b"a"); assert_eq!(f(), c"a");', []),
        ("a.rs", RUST, "assert_eq!(f(), " + "& " * 2000 + "1);", []),
        ("a.rs", RUST, "assert_eq!(f(), 1" + ".into()" * 2000 + ");", []),
        ("a.rs", RUST, "assert_eq!(f(), " + "[" * 2000 + "]" * 2000 + ");", []),
        ("ATest.java", JAVA, 'Assertions.assertEquals("a", f());', ["'a'"]),
        ("ATest.java", JAVA, "assertEquals(f(), 5L); assertEquals(2.5f, f());", ["5", "2.5"]),
        ("ATest.java", JAVA, 'assertThat(f()).isEqualTo("a");', ["'a'"]),
        ("ATest.java", JAVA, "assertFalse(f()); assertNull(f());", ["a false value", "None"]),
        ("ATest.java", JAVA, 'assertEquals("why", 1, f()); assertThat(f()).isNotNull();', []),
    ],
)
def test_checks_of_go_rust_and_java(path: str, text: str, check: str, found: list[str]) -> None:
    assert wants(path, text.format(check)) == found


@pytest.mark.parametrize(
    ("path", "text", "test", "check"),
    [
        (
            "a.test.mjs",
            "'use strict';\n" + JAVASCRIPT,
            "suite > adds",
            "expect(f(\n)).toBe('abc');",
        ),
        ("a_test.go", GO, "TestA", 'assert.Equal(t, "abc",\n\t\tf())'),
        ("a_test.go", GO, "TestA", 'if f() !=\n\t\t"abc" { t.Fail() }'),
        ("a_test.go", GO, "TestA", 'want := "abc"\n\tif f() != want { t.Fatal(want) }'),
        ("a.rs", "//! Docs.\n#![no_std]\n" + RUST, "a::adds", 'assert_eq!(f(),\n "abc");'),
        ("ATest.java", JAVA, "x.ATest#adds", 'assertEquals("abc",\n    f());'),
    ],
)
def test_a_blind_file_keeps_its_lines_and_lacks_the_values(
    path: str, text: str, test: str, check: str
) -> None:
    text = text.format(check)
    made = blind(path, text, test)
    blinded = made.text("/to/records")
    assert "abc" not in blinded
    assert "/to/records" in blinded
    ending = text.split("\n")[-2]
    assert blinded.split("\n")[text.count("\n") - 1] == ending
    plain = text.replace(check, "g();")
    failing = blind(path, plain, test).text("/to/records")
    assert failing.count("\n") == plain.count("\n")
    assert "/to/records" not in failing


@pytest.mark.parametrize(
    ("check", "call"),
    [
        ("assert_eq!(f(), 1_000u64);", "(like 0u64; 0, (f()))"),
        ("assert_eq!(-1.5_f32, f());", "(liked -0.0f32; 0, (f()))"),
        (
            'assert_eq!(f(), Some(vec!["a".to_string()]));',
            '(like Some(vec!["".to_string()]); 0, (f()))',
        ),
        ('assert_eq!(f(), [(r#"a"#)]);', '(like [("")]; 0, (f()))'),
        ("assert_eq!(f(), Ok(true));", "(like Ok(false); 0, (f()))"),
        ("assert!(f());", "(truth 0, (f()))"),
    ],
)
def test_a_blind_test_of_rust_keeps_the_types_of_what_it_expects(check: str, call: str) -> None:
    made = blind("a.rs", RUST.format(check), "adds").text("records")
    assert made.split("\n")[-3].strip() == f"_swe_rollout_hole_0!{call};"


def test_a_test_that_the_base_has_is_known() -> None:
    text = JAVASCRIPT.format("expect(f()).toBe('abc');")
    (watched,) = blind("a.js", text, "adds", base=text).watched
    assert [hole.is_new for hole in watched.holes.values()] == [False]


@pytest.mark.parametrize(
    ("path", "text", "test"),
    [("a.js", JAVASCRIPT, "adds"), ("a_test.go", GO, "TestA"), ("A.java", JAVA, "adds")],
)
def test_a_test_fails_before_it_can_return(path: str, text: str, test: str) -> None:
    failing = blind(path, text.format("return;"), test).text("records")
    assert re.search(r"(throw|Fatal).*return", failing, re.DOTALL)


@pytest.mark.parametrize(
    ("value", "seen", "accepted"),
    [
        ("1", 1, True),
        (1, "1.0", True),
        (1, True, True),
        (0, "", True),
        ("a", 0, False),
        (0, None, False),
        ("1", [1], True),
        (1, ["1.0"], True),
        ("a,,true,2", ["a", None, [True, 2]], True),
        ("a,b", ["a", "c"], False),
        (1, 10**400, False),
        (1, [16**60_000], False),
        ("1", "1.0", False),
        (16, " 0x10", True),
        (8, "08", True),
    ],
)
def test_loose_equality_is_that_of_javascript(
    value: Value, seen: object, *, accepted: bool
) -> None:
    assert Loose(value).accepts(seen) is accepted


def test_titles_are_ends_of_ids() -> None:
    text = JAVASCRIPT.format("expect(f()).toBe('abc');")
    for name in ("adds", "a > b > adds", "[x] adds", "- adds"):
        assert blind("a.js", text, name).watched
    for name in ("it adds more", "readds"):
        assert not make_files([TestFile("a.js", text)], Expected((name,)), "seed")


def test_a_long_chain_of_calls_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    text_of = Literals.text

    def counted(reader: Literals, node: Node | None) -> str:
        read.append(text_of(reader, node))
        return read[-1]

    monkeypatch.setattr(Literals, "text", counted)
    text = "a" + ".b('x')" * 1000
    assert wants("a.test.js", text) == []
    assert sum(map(len, read)) < 2 * len(text)


class Id(str):
    """Counts how often ids are looked at."""

    __slots__ = ()
    looks = 0

    def rstrip(self, characters: str | None = None) -> str:
        Id.looks += 1
        return super().rstrip(characters)


def test_each_id_is_looked_at_once_however_many_tests_there_are() -> None:
    Id.looks = 0
    text = "".join(f"it('adds {number}', () => {{ f(); }});\n" for number in range(50))
    ids = tuple(Id(f"suite > adds {number}") for number in range(50))
    (made,) = make_files([TestFile("a.js", text)], Expected(ids), "seed").values()
    assert [each.tests for each in made.watched] == [frozenset({name}) for name in ids]
    assert Id.looks == len(ids)


@pytest.mark.parametrize(
    "text", ["it('a', () => {", "(" * 50_000, "x" * (2 << 20), "[" * 9000 + "]" * 9000, "\0", ""]
)
def test_files_that_can_not_be_read_have_no_tests(text: str) -> None:
    assert wants("a.test.js", text) == []


def test_a_file_that_takes_too_long_to_parse_has_no_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    text = JAVASCRIPT.format("expect(f()).toBe('a');" * 1000)
    assert wants("a.test.ts", text)
    monkeypatch.setattr(syntax, "_LONGEST_PARSE_S", -1)
    assert not wants("a.test.ts", text)


def test_only_known_languages_have_blind_forms() -> None:
    known = [path for path in ("a.py", "a.rb", "a.go", "a_test.go", "A.java") if may_be_blind(path)]
    assert known == ["a.py", "a_test.go", "A.java"]


@pytest.mark.parametrize(
    ("value", "recorded"),
    [
        ("new (class A { x = [1n]; })", "{'x': [1]}"),
        ("new (class A { toString() { return 'a'; } })", "?"),
        ("{ valueOf: () => 5 }", "?"),
        ("[new Map(), 1]", "?"),
        ("[, 2]", "?"),
        ("Object.create(null)", "{}"),
    ],
)
async def test_what_the_recorder_of_javascript_can_show(value: str, recorded: str) -> None:
    if (node := shutil.which("node")) is None:
        pytest.skip("needs node")
    made = blind("a.js", JAVASCRIPT.format(f"expect({value}).toBe('a');"), "adds")
    program = f"const it = (name, test) => test(); {made.text('/dev/stdout')}"
    run = await asyncio.create_subprocess_exec(node, "-e", program, stdout=asyncio.subprocess.PIPE)
    assert (await run.communicate())[0].decode() == f"0 {recorded}\n"


RUST_VALUES = {
    '5, parsed("5")': "5",
    "Some(1e21), Some(1.5)": "(1e21)",
    '"7".parse::<i8>(), Ok(7)': "(7)",
    "vec![-1.5, 1e-7], [1.5, 1.5]": "[-1.5, 1e-7]",
    'Shown("1.2.3"), 1': "?",
    'Shown("2020-01-02"), 1': "?",
    'Shown("1 2"), 1': "?",
    'Shown("007"), 1': "?",
    'Shown("0..3"), 1': "?",
    'Shown("[-]"), 1': "?",
}


async def test_what_the_recorder_of_rust_can_show(tmp_path: Path) -> None:
    """A value of the code under test, such as a version, may look like anything."""
    if (rustc := shutil.which("rustc")) is None:
        pytest.skip("needs rustc")
    code = """
        struct Shown(&'static str);
        impl std::fmt::Debug for Shown {
            fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result { f.write_str(self.0) }
        }
        impl<T> PartialEq<T> for Shown { fn eq(&self, _: &T) -> bool { true } }
        fn parsed<T: std::str::FromStr + Default>(text: &str) -> T {
            text.parse().unwrap_or_default()
        }
    """
    made = blind(
        "a.rs", RUST.format("\n".join(f"assert_eq!({v});" for v in RUST_VALUES)) + code, "adds"
    )
    records = tmp_path / "records"
    (tmp_path / "a.rs").write_text(made.text(str(records)))
    for command in ([rustc, "--test", "a.rs", "-o", "a"], [tmp_path / "a"]):
        run = await asyncio.create_subprocess_exec(*command, cwd=tmp_path)
        assert await run.wait() == 0
    found = [line.partition(" ")[2] for line in records.read_text().splitlines()]
    assert found == list(RUST_VALUES.values())
