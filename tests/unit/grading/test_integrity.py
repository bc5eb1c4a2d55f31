"""Signs that a log does not describe the run that happened."""

from __future__ import annotations

from swe_rollout.grading import integrity
from swe_rollout.grading.parsers.base import Result
from swe_rollout.types.verdict import TestStatus

S = TestStatus


def test_many_findings_are_counted_and_not_listed() -> None:
    found = integrity.of_contradictions(f"{n:02}" for n in range(25))
    assert len(found) == 11
    assert found[0] == "reports 00 as both passed and failed"
    assert found[-1] == "and 15 more like the last one"


def test_contradictions_about_expected_tests_are_found() -> None:
    claims = [Result("a", S.FAILED), Result("a", S.PASSED), Result("b", S.PASSED)]
    claims += [Result("c", S.FAILED), Result("c", S.PASSED)]
    assert integrity.contradictions(claims, {"a", "b"}) == {"a"}


def test_an_exit_code_without_a_failure_is_found_and_only_that() -> None:
    assert integrity.of_exit({"a": S.PASSED}, 1)
    assert not integrity.of_exit({"a": S.PASSED}, 0)
    assert not integrity.of_exit({"a": S.PASSED, "b": S.ERROR}, 1)
    assert not integrity.of_exit({}, 1)
