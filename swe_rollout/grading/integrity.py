"""Find signs that a log does not describe the run that happened. Pure.

Findings inform people and policies; the grader says which of them decide.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from swe_rollout.grading.parsers.base import Result
from swe_rollout.types.verdict import TestStatus

_SHOWN = 10
_BAD = frozenset({TestStatus.FAILED, TestStatus.ERROR})


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
    """Say so."""
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
