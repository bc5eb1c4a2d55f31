"""Judge test statuses: turn the log's claims into the verdict on the task. Pure.

This module also finds signs that a log does not describe the run that happened. The findings inform
people and policies; the grader decides which of them count.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise

from swe_rollout.grading.parsers.base import Result
from swe_rollout.grading.parsers.text import untimed
from swe_rollout.types.instance import Expected, Rule
from swe_rollout.types.verdict import TestReport, TestStatus, VerdictStatus

FIXED = frozenset({TestStatus.PASSED, TestStatus.XFAIL})
"""Statuses that count as fixed: the test passes, or fails as its authors expect (xfail)."""
KEPT = FIXED | {TestStatus.SKIPPED}
"""Statuses that count as kept: a test that must go on passing may also be skipped."""
_FAILURES = frozenset({TestStatus.FAILED, TestStatus.ERROR, TestStatus.XFAIL})
"""Statuses that count as failed in lists of plain passes: an expected failure is one, too."""
_BAD = frozenset({TestStatus.FAILED, TestStatus.ERROR})
_SHOWN = 10
_DURATION = re.compile(r"(?<!\s)\s++in\s++\d{1,12}(?:\.\d{1,12})?\s++m?sec\b")
_RAN = re.compile(
    r"(?<!\d)[1-9]\d*+ (?:passing|passed|specs?,)|Executed [1-9]\d* of|^Ran [1-9]\d* test"
    r"|Tests: +[1-9]|Test Suites: +(?:\d+ \w+, )*[1-9]\d* total|TOTAL: [1-9]|^# tests [1-9]",
    re.MULTILINE,
)
"""Matches the summary of a test runner that ran at least one test."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The status of a verdict and the tests it rests on."""

    status: VerdictStatus
    report: TestReport


def judge(
    statuses: Mapping[str, TestStatus], expected: Expected, rule: Rule, *, log: str = ""
) -> Judgement:
    """Decide between resolved, unresolved and, if there are no statuses, no tests run.

    A suite that prints only failures may succeed without naming a test; then the summary in
    `log` must show that the suite ran.
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
    """Report the status of every expected test, `missing` for a test that the log does not name.

    If the rule looks at other tests as well, they are reported too.
    """
    fixed, kept = expected.fail_to_pass, expected.pass_to_pass
    if rule is Rule.PASS_SET_EQUAL:
        statuses = {_timeless(test): status for test, status in statuses.items()}
        fixed, kept = tuple(map(_timeless, fixed)), tuple(map(_timeless, kept))
    # Only the lists of the first datasets contain truncated ids.
    has_cut = rule in (Rule.F2P_P2P, Rule.FAIL_ONLY) and any(map(_is_cut, (*fixed, *kept)))
    find: Callable[[str], TestStatus] = partial(_exact, statuses=statuses)
    if has_cut:
        find = _Completions(statuses).status
    return TestReport(
        {test: find(test) for test in fixed},
        {test: find(test) for test in kept},
        _others(statuses, Expected(fixed, kept, expected.others), rule),
    )


def _others(
    statuses: Mapping[str, TestStatus], expected: Expected, rule: Rule
) -> dict[str, TestStatus]:
    """Choose the tests in neither list that the rule looks at."""
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
    """Cut durations, which some runners print as part of a name and which differ in each run."""
    return untimed(_DURATION.sub("", test)).strip()


def _exact(test: str, statuses: Mapping[str, TestStatus]) -> TestStatus:
    return statuses.get(test, TestStatus.MISSING)


def _is_cut(test: str) -> bool:
    """Return whether an id is truncated inside a parameter. Some official lists have such ids."""
    return test.count("[") > test.count("]")


class _Completions:
    """Looks tests up; a truncated id stands for its completions, which must be of one kind.

    Both the list and the log may have very many ids, so nothing compares all with all.
    """

    def __init__(self, statuses: Mapping[str, TestStatus]) -> None:
        self._statuses = statuses
        self._tests = sorted(statuses)
        kinds = [(statuses[test] in FIXED, statuses[test] in KEPT) for test in self._tests]
        self._changes = [0, *accumulate(a != b for a, b in pairwise(kinds))]
        """How often the kind has changed, up to each test."""

    def status(self, test: str) -> TestStatus:
        """Return the status of a test, or MISSING."""
        if test in self._statuses or not _is_cut(test):
            return _exact(test, self._statuses)
        start = bisect_left(self._tests, test)
        # Those that begin with it come first from there on.
        end = bisect_left(self._tests, 1, start, key=lambda name: 1 - name.startswith(test))
        if start < end and self._changes[start] == self._changes[end - 1]:
            return self._statuses[self._tests[start]]
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
    """Describe an exit code that reports a failed test although the log names none."""
    if exit_code and not any(status in _BAD for status in statuses.values()):
        return (f"the tests ended with exit code {exit_code}, yet none is reported as failed",)
    return ()


def shown(findings: Iterable[str]) -> tuple[str, ...]:
    """Return the first findings, as text that can be stored, and how many more there are."""
    known = tuple(findings)
    first = tuple(each.encode(errors="replace").decode() for each in known[:_SHOWN])
    more = len(known) - _SHOWN
    return (*first, f"and {more} more like the last one") if more > 0 else first
