"""What grading says: statuses of tests, a verdict over them, and the reward it earns."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class VerdictStatus(StrEnum):
    """The outcome of grading one patch."""

    RESOLVED = "resolved"
    UNRESOLVED = "unresolved"
    EMPTY_PATCH = "empty_patch"
    """Nothing was changed; the tests were not run because the base is known to fail."""
    PATCH_FAILED = "patch_failed"
    """The diff does not apply to the clean base."""
    TESTS_TIMED_OUT = "tests_timed_out"
    NO_TESTS_RAN = "no_tests_ran"


class TestStatus(StrEnum):
    """One test's status, in SWE-bench's words; `missing` when the log does not name the test."""

    __test__ = False  # pytest would take the class for a test

    PASSED = "PASSED"
    FAILED = "FAILED"
    ERROR = "ERROR"
    SKIPPED = "SKIPPED"
    XFAIL = "XFAIL"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class TestReport:
    """Status of every expected test, by list."""

    __test__ = False

    fail_to_pass: dict[str, TestStatus]
    pass_to_pass: dict[str, TestStatus]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the grader found: the status, the tests behind it, and the end of the log."""

    status: VerdictStatus
    report: TestReport
    integrity: tuple[str, ...] = ()
    """Findings about tampering and about what the log leaves open, for people and policies."""
    log_tail: str = ""
    """The end of the test log, for people."""
    duration_s: float = 0.0

    @property
    def resolved(self) -> bool:
        """Whether the task is solved."""
        return self.status is VerdictStatus.RESOLVED


@dataclass(frozen=True, slots=True)
class RewardTerm:
    """One named part of a reward."""

    name: str
    score: float
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Reward:
    """Named terms; `value` is their weighted sum. A trajectory that was not graded has none."""

    terms: tuple[RewardTerm, ...]

    @property
    def value(self) -> float:
        """The scalar a trainer uses."""
        return sum(term.score * term.weight for term in self.terms)

    @classmethod
    def of(cls, verdict: Verdict) -> Reward:
        """1.0 for resolved, 0.0 otherwise."""
        return cls((RewardTerm("resolved", 1.0 if verdict.resolved else 0.0),))
