"""Judge test statuses: from the log's claims to the verdict on the task. Pure.

Also finds signs that a log does not describe the run that happened. These findings inform people
and policies; the grader says which of them decide.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from swe_rollout.grading.parsers.base import Result
from swe_rollout.grading.parsers.text import untimed
from swe_rollout.types.instance import Expected, Rule
from swe_rollout.types.verdict import TestReport, TestStatus, VerdictStatus

FIXED = frozenset({TestStatus.PASSED, TestStatus.XFAIL})
"""Statuses that count as fixed: the test passes, or fails as its authors expect."""
KEPT = FIXED | {TestStatus.SKIPPED}
"""Statuses that count as kept: a test that must go on passing may also be skipped."""
_FAILURES = frozenset({TestStatus.FAILED, TestStatus.ERROR, TestStatus.XFAIL})
"""An expected failure is one, too, where lists hold passes alone."""
_BAD = frozenset({TestStatus.FAILED, TestStatus.ERROR})
_SHOWN = 10
_DURATION = re.compile(r"(?<!\s)\s++in\s++\d{1,12}(?:\.\d{1,12})?\s++m?sec\b")
_RAN = re.compile(
    r"[1-9]\d* (?:passing|passed|specs?,)|Executed [1-9]\d* of|^Ran [1-9]\d* test"
    r"|Tests: +[1-9]|Test Suites: +(?:\d+ \w+, )*[1-9]\d* total|TOTAL: [1-9]|^# tests [1-9]",
    re.MULTILINE,
)
"""Matches the summaries of test runners that ran at least one test."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict's status and the tests it rests on."""

    status: VerdictStatus
    report: TestReport


def judge(
    statuses: Mapping[str, TestStatus], expected: Expected, rule: Rule, *, log: str = ""
) -> Judgement:
    """Decide between resolved and unresolved; without any status, no tests ran.

    Suites that print failures only may succeed without naming a test: then the summary in `log`
    must show that the suite ran.
    """
    report = report_of(statuses, expected, rule)
    if not statuses and not (rule is Rule.FAIL_ONLY and _RAN.search(log)):
        return Judgement(VerdictStatus.NO_TESTS_RAN, report)
    lists = ((report.fail_to_pass, FIXED), (report.pass_to_pass, KEPT))
    if any(unmet(tests, accepted, rule) for tests, accepted in lists):
        return Judgement(VerdictStatus.UNRESOLVED, report)
    if any(status is not expected.others.get(test) for test, status in report.others.items()):
        return Judgement(VerdictStatus.UNRESOLVED, report)
    return Judgement(VerdictStatus.RESOLVED, report)


def report_of(
    statuses: Mapping[str, TestStatus], expected: Expected, rule: Rule = Rule.F2P_P2P
) -> TestReport:
    """Report the status of every expected test; `missing` where the log does not name it.

    Under rules that look at other tests as well, those are reported too.
    """
    fixed, kept = expected.fail_to_pass, expected.pass_to_pass
    if rule is Rule.PASS_SET_EQUAL:
        statuses = {_timeless(test): status for test, status in statuses.items()}
        fixed, kept = tuple(map(_timeless, fixed)), tuple(map(_timeless, kept))
    # Ids that are cut off are a flaw of the first datasets' lists.
    find = _status if rule in (Rule.F2P_P2P, Rule.FAIL_ONLY) else _exact
    return TestReport(
        {test: find(test, statuses) for test in fixed},
        {test: find(test, statuses) for test in kept},
        _others(statuses, Expected(fixed, kept, expected.others), rule),
    )


def _others(
    statuses: Mapping[str, TestStatus], expected: Expected, rule: Rule
) -> dict[str, TestStatus]:
    """Choose the tests of neither list that the rule looks at."""
    listed = {*expected.fail_to_pass, *expected.pass_to_pass}
    match rule:
        case Rule.EXACT_MATCH:
            names = [test for test in {**expected.others, **statuses} if test not in listed]
            return {test: _exact(test, statuses) for test in names}
        case Rule.PASS_SET_EQUAL:
            passed = TestStatus.PASSED
            return {t: s for t, s in statuses.items() if s is passed and t not in listed}
        case _:
            return {}


def _timeless(test: str) -> str:
    """Cut durations, which some runners print as part of names and which differ each time."""
    return untimed(_DURATION.sub("", test)).strip()


def _exact(test: str, statuses: Mapping[str, TestStatus]) -> TestStatus:
    return statuses.get(test, TestStatus.MISSING)


def _status(test: str, statuses: Mapping[str, TestStatus]) -> TestStatus:
    """Look a test up; an expected id that is cut inside a parameter counts as its completions.

    These must agree on passing or not. Some of the official lists have such ids.
    """
    if test in statuses:
        return statuses[test]
    if test.count("[") > test.count("]"):
        begun = [status for name, status in statuses.items() if name.startswith(test)]
        if begun and len({status in FIXED for status in begun}) == 1:
            return begun[0]
    return TestStatus.MISSING


def unmet(
    tests: Mapping[str, TestStatus], accepted: frozenset[TestStatus], rule: Rule
) -> list[str]:
    """List the tests that do not meet the rule, in order.

    `accepted` is FIXED for tests to fix and KEPT for tests to keep passing.
    """
    match rule:
        case Rule.F2P_P2P | Rule.REWARD_FILE:
            return [test for test, status in tests.items() if status not in accepted]
        case Rule.FAIL_ONLY:
            return [test for test, status in tests.items() if status is TestStatus.FAILED]
        case Rule.EXACT_MATCH | Rule.PASS_SET_EQUAL | Rule.PASS_SUPERSET:
            return [test for test, status in tests.items() if status is not TestStatus.PASSED]
        case Rule.NO_NEW_FAILURES if accepted is FIXED:
            return [test for test, status in tests.items() if status is not TestStatus.PASSED]
        case Rule.NO_NEW_FAILURES:
            return [test for test, status in tests.items() if status in _FAILURES]


def contradictions(results: Iterable[Result], expected: Collection[str]) -> frozenset[str]:
    """Find expected tests that the log reports both as passed and as failed."""
    seen: dict[str, set[TestStatus]] = {}
    for result in results:
        if result.test in expected:
            seen.setdefault(result.test, set()).add(result.status)
    return frozenset(
        test for test, statuses in seen.items() if TestStatus.PASSED in statuses and statuses & _BAD
    )


def of_contradictions(tests: Iterable[str]) -> tuple[str, ...]:
    """Describe contradictions, for people."""
    return shown(f"reports {test} as both passed and failed" for test in sorted(tests))


def of_exit(statuses: Mapping[str, TestStatus], exit_code: int) -> tuple[str, ...]:
    """Find an exit code that reports a failed test while the log names none."""
    if statuses and exit_code and not any(status in _BAD for status in statuses.values()):
        return (f"the tests ended with exit code {exit_code}, yet none is reported as failed",)
    return ()


def shown(findings: Iterable[str]) -> tuple[str, ...]:
    """Return the first findings, and the number of the others."""
    known = tuple(findings)
    more = len(known) - _SHOWN
    return (*known[:_SHOWN], f"and {more} more like the last one") if more > 0 else known
