"""Twins: which tests get one, and what a run of a twin has to show."""

from __future__ import annotations

from swe_rollout.grading.twins import Gold, Shown, TestFile, Twin, TwinKind, make_twins, other_files
from swe_rollout.types.instance import Expected
from swe_rollout.types.verdict import TestStatus

S = TestStatus
NEW = "def test_new():\n    assert f() == 'right one'\n\n\ndef test_old():\n    assert g() == 1\n"
OLD = "def test_old():\n    assert g() == 1\n"
FILE = TestFile("tests/test_a.py", NEW, OLD)
EXPECTED = Expected(("tests/test_a.py::test_new",), ("tests/test_a.py::test_old",))


def twin(kind: TwinKind, *files: TestFile, expected: Expected = EXPECTED) -> Twin:
    (found,) = [each for each in make_twins(files, expected, "seed") if each.kind is kind]
    return found


def test_all_tests_end_with_a_failure_and_only_new_ones_expect_something_else() -> None:
    ending = twin(TwinKind.ENDING, FILE).files["tests/test_a.py"]
    assert ending.count("raise AssertionError") == 2
    constants = twin(TwinKind.CONSTANTS, FILE).files["tests/test_a.py"]
    assert "'right one'" not in constants
    assert OLD in constants


def test_a_file_that_the_base_has_gets_no_other_constants() -> None:
    kinds = [
        each.kind for each in make_twins([TestFile("tests/test_a.py", NEW, NEW)], EXPECTED, "s")
    ]
    assert kinds == [TwinKind.ENDING]


def test_tests_are_found_by_titles_and_by_names_without_files() -> None:
    text = 'class T:\n    def test_x(self):\n        """Title of it."""\n        assert f()\n'
    for name in ("Title of it.", "test_x (app.T)", "test_x"):
        found = twin(TwinKind.ENDING, TestFile("t.py", text), expected=Expected((name,)))
        assert "raise" in found.files["t.py"]


def test_files_without_such_tests_have_no_twins() -> None:
    assert make_twins([TestFile("a.js", "test()"), TestFile("b.py", "x = (")], EXPECTED, "s") == ()


def test_the_same_seed_makes_the_same_twins() -> None:
    assert make_twins([FILE], EXPECTED, "a") == make_twins([FILE], EXPECTED, "a")
    assert make_twins([FILE], EXPECTED, "a") != make_twins([FILE], EXPECTED, "b")


def test_files_of_some_tests_to_keep_are_named() -> None:
    kept = (*(f"tests/test_{n}.py::test_x" for n in range(99)), "test_x (app.T)")
    found = other_files(Expected((), kept), "s")
    assert len(found) == 20
    assert found == other_files(Expected((), kept), "s")


def test_a_failure_at_the_end_shows_its_token() -> None:
    ending = twin(TwinKind.ENDING, FILE)
    assert ending.traits(f"E  AssertionError: {ending.token}") == {"the end of its body"}
    assert ending.traits("E  AssertionError: else") == frozenset()


def test_a_failed_comparison_shows_its_line_and_the_right_value() -> None:
    constants = twin(TwinKind.CONSTANTS, FILE)
    shown = "E   AssertionError: assert 'right one' == 'x'\n\ntests/test_a.py:2: AssertionError"
    assert constants.traits(shown) == {"line 2", "the value at line 2"}
    wrong = shown.replace("'right one'", "'wrong'")
    assert constants.traits(wrong) == {"line 2"}
    unittest = "File \"/testbed/tests/test_a.py\", line 2, in t\nAssertionError: 'right one' != 1"
    assert constants.traits(unittest) == {"line 2", "the value at line 2"}


GOLD = Gold(
    Twin(TwinKind.CONSTANTS, {}, "t"),
    {
        "new": Shown(S.FAILED, frozenset({"line 2"})),
        "old": Shown(S.FAILED),
        "silent": Shown(S.PASSED),
    },
)
TESTS = Expected(("new", "silent"), ("old",))


def problems(**seen: Shown) -> tuple[str, ...]:
    return GOLD.problems(seen, TESTS)


def test_what_gold_shows_is_no_problem() -> None:
    shown = Shown(S.FAILED, frozenset({"line 2", "more"}))
    assert problems(new=shown, old=Shown(S.ERROR), silent=Shown(S.FAILED)) == ()


def test_a_twin_that_passes_is_missing_or_fails_otherwise_is_a_problem() -> None:
    good, old = Shown(S.FAILED, frozenset({"line 2"})), Shown(S.FAILED)
    assert "PASSED" in problems(new=Shown(S.PASSED), old=old)[0]
    assert "XFAIL" in problems(new=Shown(S.XFAIL), old=old)[0]
    assert "missing" in problems(old=old)[0]
    assert "ERROR" in problems(new=Shown(S.ERROR), old=old)[0]
    assert "not for line 2" in problems(new=Shown(S.FAILED), old=old)[0]
    assert "old: PASSED" in problems(new=good, old=Shown(S.PASSED))[0]
    assert problems(new=good) == ()
