"""Blind runs: what becomes of test files, and what a run has to show."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from swe_rollout.errors import GraderError
from swe_rollout.grading.blind import (
    Blind,
    BlindRun,
    Expectation,
    make_blind,
)
from swe_rollout.grading.blind_files import TestFile, other_files
from swe_rollout.grading.wants import Close, Equal, Truth, Want
from swe_rollout.types.instance import Expected, Instance
from swe_rollout.types.verdict import TestStatus

S = TestStatus
OLD = "def test_old():\n    assert g() == 1\n"
NEW = (
    f"import a\n\n\ndef test_new():\n    assert f() == 'right one'\n    assert n() == 3\n\n\n{OLD}"
    "\n\ndef test_flag():\n    assert flag()\n"
)
FILE = TestFile("tests/test_a.py", NEW, OLD)
NAME = "tests/test_a.py::"
TESTS = Expected((f"{NAME}test_new", f"{NAME}test_flag"), (f"{NAME}test_old",))
INSTANCE = Instance(
    instance_id="one", problem_statement="an issue", image="image:1", expected=TESTS
)
PASSING = {f"{NAME}test_new": S.PASSED, f"{NAME}test_flag": S.FAILED, f"{NAME}test_old": S.ERROR}
RECORDS = b"0 'right one'\n1 3\n2 True\n"
BASE = BlindRun.of({}, b"0 'wrong'\n1 3\n")


def blind(file: TestFile = FILE, expected: Expected = TESTS) -> Blind:
    return make_blind([file], expected, "seed")


def run(records: bytes = RECORDS, **statuses: TestStatus) -> BlindRun:
    changed = {f"{NAME}test_{name}": status for name, status in statuses.items()}
    return BlindRun.of({**PASSING, **changed}, records)


def expectation() -> Expectation:
    first = blind()
    telling = first.telling(BASE)
    return Expectation.of(first.confirmed(run(), telling), run(), INSTANCE, telling)


def test_new_tests_lose_what_they_expect_and_all_others_fail() -> None:
    text = blind().texts("records")["tests/test_a.py"]
    assert "right one" not in text
    assert "flag()" in text
    assert text.endswith("\n")
    assert text.count("raise AssertionError") == 1


def test_a_file_without_such_tests_has_no_blind_form() -> None:
    assert not blind(TestFile("a.js", "test()")).files
    assert not blind(TestFile("b.py", "x = (")).files


def test_tests_are_found_by_titles_and_by_names_without_files() -> None:
    text = 'class T:\n    def test_x(self):\n        """Title of it."""\n        assert f()\n'
    for name in ("Title of it.", "test_x (app.T)", "app.T.test_x", "test_x"):
        assert blind(TestFile("t.py", text), Expected((name,))).files


def test_the_same_seed_makes_the_same_files() -> None:
    assert blind().texts("r") == blind().texts("r")
    assert make_blind([FILE], TESTS, "a") != make_blind([FILE], TESTS, "b")


def test_files_of_some_tests_to_keep_are_named() -> None:
    kept = (*(f"tests/test_{n}.py::test_x" for n in range(99)), "test_x (app.T)")
    found = other_files(Expected((), kept), "s")
    assert len(found) == 20
    assert found == other_files(Expected((), kept), "s")


HEADS = [
    "",
    '"""Title."""\n',
    "# a comment\nfrom __future__ import annotations\n",
    '"""Title."""\nfrom __future__ import annotations; import os\n',
    "import pytest\n",
    "@mark\nclass C:\n    pass\n",
    "if True:\n    x = 1\n",
]


@pytest.mark.parametrize("head", HEADS)
def test_a_blind_file_records_what_it_compares(head: str, tmp_path: Path) -> None:
    tests = (
        "def test_new():\n    assert values() == ['text', b'\\xff', 2, -1.5]\n"
        "    assert text() == '''two\nlines'''\n"
    )
    records = tmp_path / "records"
    text = blind(TestFile("t.py", head + tests)).texts(str(records))["t.py"]
    space: dict[str, object] = {"mark": lambda given: given}
    exec(compile(text, "t", "exec"), space)  # noqa: S102
    space |= {"values": lambda: ["täxt", b"\xff", True, -1.5], "text": lambda: Text("two\nlines")}
    test = space["test_new"]
    assert isinstance(test, Callable)  # type: ignore[arg-type]
    test()  # type: ignore[operator]
    seen = BlindRun.of({}, records.read_bytes())
    assert seen.records == {0: ("täxt",), 1: (b"\xff",), 2: (True,), 3: (-1.5,), 4: ("two\nlines",)}


class Text(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return "of a class of its own"


def test_what_can_not_be_recorded_is_said(tmp_path: Path) -> None:
    text = blind(TestFile("t.py", "def test_new():\n    assert value() == 1\n")).texts(
        str(tmp_path / "r")
    )["t.py"]
    space: dict[str, object] = {"value": object}
    exec(compile(text + "test_new()\n", "t", "exec"), space)  # noqa: S102
    seen = BlindRun.of({}, (tmp_path / "r").read_bytes())
    assert seen.is_unplain(0)
    assert not seen.meets(0, Equal(1))


def test_gold_decides_what_stays_out() -> None:
    first = blind()
    telling = first.telling(BASE)
    assert telling == {0, 2}
    assert set(first.confirmed(run(), telling).holes) == {0, 1}
    assert set(first.confirmed(run(b"0 'right one'\n"), telling).holes) == {0}
    assert not first.confirmed(run(b"0 'other'\n1 3\n"), telling).holes
    assert not first.confirmed(run(new=S.FAILED), telling).holes
    broken = run(RECORDS.replace(b"2 True\n", b""), new=S.FAILED)
    assert set(first.confirmed(broken, telling, salvages=True).holes) == {0}
    assert not first.confirmed(run(), frozenset()).holes


def test_lines_of_another_hidden_file_can_be_seen() -> None:
    text = "some\nlines"
    file = TestFile("tests/test_a.py", NEW.replace("'right one'", repr(text)), OLD)
    seen = run(RECORDS.replace(b"right one", b"some\\nlines"))
    hidden = "--- /dev/null\n+++ b/tests/data\n@@ -0,0 +1,2 @@\n+some\n+lines\n"
    patched = replace(INSTANCE, test_patch=f"diff --git a/tests/data b/tests/data\n{hidden}")
    told, unknown = (
        Expectation.of(blind(file), seen, each, frozenset({0})).odds for each in (patched, INSTANCE)
    )
    assert told > unknown == 2.0 ** -len(text)


def test_what_the_base_computes_or_says_tells_nothing() -> None:
    first = blind()
    assert first.telling(BlindRun.of({}, RECORDS)) == frozenset()
    assert blind(replace(FILE, base=NEW)).telling(BASE) == frozenset()


def test_what_gold_shows_is_no_problem() -> None:
    shown = expectation()
    assert shown.watched(TESTS) == {f"{NAME}test_new", f"{NAME}test_flag"}
    assert shown.problems(run(), TESTS) == ()
    often = b"1 3\n" * 5 + b"0 'right one'\n" * 3 + b"1 3.0\n1 True\n"
    assert shown.problems(run(often.replace(b"1 True\n", b"")), TESTS) == ()
    assert shown.problems(run(old=S.MISSING), TESTS) == ()


@pytest.mark.parametrize(
    ("seen", "problem"),
    [
        (run(new=S.FAILED), "test_new passes, but is FAILED where it can't see what is expected"),
        (run(new=S.MISSING), "test_new passes, but is missing where"),
        (run(b"1 3\n"), "'right one' is not computed where it can't be seen"),
        (run(b"0 'wrong'\n1 3\n"), "another value than 'right one' is computed"),
        (run(RECORDS + b"0 'wrong'\n"), "another value than 'right one' is computed"),
        (run(flag=S.PASSED), "test_flag is PASSED where it has to be FAILED"),
        (run(flag=S.SKIPPED), "test_flag is SKIPPED where it has to be FAILED"),
        (run(old=S.XFAIL), "test_old is XFAIL where it has to be ERROR"),
    ],
)
def test_what_working_code_would_not_show(seen: BlindRun, problem: str) -> None:
    (found,) = expectation().problems(seen, TESTS)
    assert problem in found


def test_an_object_that_only_the_patch_can_compare_is_no_evidence() -> None:
    seen = run(b"0 ?\n1 3\n")
    assert expectation().problems(seen, TESTS) == ()
    with pytest.raises(GraderError, match="an object with 'right one'"):
        expectation().require_plain(seen)
    expectation().require_plain(run())


@pytest.mark.parametrize(
    "data",
    [
        RECORDS + b"what\n",
        RECORDS + b"0 __import__('os')\n",
        RECORDS + b"0 " + b"-" * 60_000 + b"1\n",
        RECORDS + b"0 " + b"[1]," * 20_000 + b"\n",
        RECORDS + b"0 " + b"(" * 60_000 + b"\n",
        RECORDS + b"9" * 5000 + b" 1\n",
        RECORDS + b"\xff\xfe\n",
        RECORDS + b"".join(b"7 %d\n" % n for n in range(30_000)),
        RECORDS + b"0 '" + b"\\" * 65_000 + b"\n",
    ],
)
def test_records_that_nobody_writes_count_for_nothing(data: bytes) -> None:
    assert not BlindRun.of({}, data).records


@pytest.mark.parametrize("text", ["1e999", "nan", "9" * 4000, "1" * (sys.maxsize % 4000)])
def test_odd_numbers_are_compared_without_an_error(text: str) -> None:
    seen = BlindRun.of({}, f"0 {text}\n".encode())
    assert not seen.meets(0, Equal(5))


@pytest.mark.parametrize("text", ["9" * 4000, "nan", "-inf", "'1.5'", "None", "1+2j", "{}"])
def test_what_is_not_close_is_no_error(text: str) -> None:
    assert not BlindRun.of({}, f"0 {text}\n".encode()).meets(0, Close(1.5, 1e-6, 0.0))
    assert BlindRun.of({}, b"0 1.5000001\n").meets(0, Close(1.5, 1e-6, 0.0))


@pytest.mark.parametrize("want", [*Truth, Close(1.5, 1e-6, 0.0), Close([1], 0.0, 0.0), Equal(1)])
def test_what_is_no_value_meets_no_check(want: Want) -> None:
    """Else who writes the records would need to guess nothing."""
    for text in ("?", "[]", "[[]]"):
        seen = BlindRun.of({}, f"0 {text}\n".encode())
        assert not seen.meets(0, want) or (isinstance(want, Truth) and text != "?")
    assert not BlindRun.of({}, b"0 True\n0 ?\n").meets(0, want)


def test_only_what_the_base_does_not_show_has_to_be_guessed() -> None:
    assert expectation().odds == pytest.approx(2.0 ** -len("right one"))


def test_many_problems_are_counted() -> None:
    names = tuple(f"t.py::test_{n}" for n in range(9))
    shown = Expectation(Blind({}), frozenset(names))
    found = shown.problems(BlindRun({}, {}), Expected(names))
    assert len(found) == 4
    assert found[-1] == "and 6 more like these"
