"""From what a log says to what it means for the task. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from swe_rollout.instance import Rule
from swe_rollout.verdict import TestReport, TestStatus, VerdictStatus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from swe_rollout.instance import Expected

_PASSES = frozenset({TestStatus.PASSED, TestStatus.XFAIL})
_HOLDS = _PASSES | {TestStatus.SKIPPED}
_RAN = re.compile(
    r"[1-9]\d* (?:passing|passed|specs?,)|Executed [1-9]\d* of|^Ran [1-9]\d* test"
    r"|Tests: +[1-9]|TOTAL: [1-9]|^# tests [1-9]",
    re.MULTILINE,
)
"""Summaries of runners that ran at least one test."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The status of the task and the tests behind it."""

    status: VerdictStatus
    report: TestReport


@dataclass(frozen=True, slots=True)
class Split:
    """One list of expected tests, by whether each did what is asked of it."""

    success: tuple[str, ...]
    failure: tuple[str, ...]


def judge(
    statuses: Mapping[str, TestStatus], expected: Expected, rule: Rule, *, log: str = ""
) -> Judgement:
    """Resolved or unresolved; no tests ran when the log names none at all.

    Where suites print failures only, a log without a test may be a success: then `log` must show
    by its summary that the suite ran.
    """
    report = report_of(statuses, expected)
    if not statuses and not (rule is Rule.FAIL_ONLY and _RAN.search(log)):
        return Judgement(VerdictStatus.NO_TESTS_RAN, report)
    repaired, kept = fail_to_pass(report, rule), pass_to_pass(report, rule)
    resolved = not repaired.failure and not kept.failure
    return Judgement(VerdictStatus.RESOLVED if resolved else VerdictStatus.UNRESOLVED, report)


def report_of(statuses: Mapping[str, TestStatus], expected: Expected) -> TestReport:
    """The status of every expected test; `missing` where the log does not name it."""
    return TestReport(
        {test: _status(test, statuses) for test in expected.fail_to_pass},
        {test: _status(test, statuses) for test in expected.pass_to_pass},
    )


def _status(test: str, statuses: Mapping[str, TestStatus]) -> TestStatus:
    """The test's own status; of an expected id that is cut inside a parameter, its completions'.

    Those must agree on passing or not: some of the official lists are cut so.
    """
    if test in statuses:
        return statuses[test]
    if test.count("[") > test.count("]"):
        begun = [status for name, status in statuses.items() if name.startswith(test)]
        if begun and len({status in _PASSES for status in begun}) == 1:
            return begun[0]
    return TestStatus.MISSING


def fail_to_pass(report: TestReport, rule: Rule) -> Split:
    """The tests that the fix must repair: they pass, or fail as their authors expect."""
    return _split(report.fail_to_pass, rule, _PASSES)


def pass_to_pass(report: TestReport, rule: Rule) -> Split:
    """The tests that the fix must not break: they may also be skipped."""
    return _split(report.pass_to_pass, rule, _HOLDS)


def _split(tests: Mapping[str, TestStatus], rule: Rule, accepted: frozenset[TestStatus]) -> Split:
    match rule:
        case Rule.F2P_P2P:
            good = [test for test, status in tests.items() if status in accepted]
        case Rule.FAIL_ONLY:
            good = [test for test, status in tests.items() if status is not TestStatus.FAILED]
    return Split(tuple(good), tuple(_without(tests, good)))


def _without(tests: Mapping[str, TestStatus], good: Sequence[str]) -> list[str]:
    known = set(good)
    return [test for test in tests if test not in known]
