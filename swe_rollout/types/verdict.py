"""Grading results: test statuses, the verdict on them, and the reward."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class VerdictStatus(StrEnum):
    """The outcome of grading one patch."""

    RESOLVED = "resolved"
    UNRESOLVED = "unresolved"
    EMPTY_PATCH = "empty_patch"
    """Nothing was changed. The tests did not run, because the base commit is known to fail them."""
    PATCH_FAILED = "patch_failed"
    """The diff does not apply to the clean base."""
    TESTS_TIMED_OUT = "tests_timed_out"
    NO_TESTS_RAN = "no_tests_ran"
    TAMPERED = "tampered"
    """The tests pass, but there is evidence that the patch manipulated them."""


class TestStatus(StrEnum):
    """The status of one test, in SWE-bench's terms; `missing` if the log does not name it."""

    __test__ = False  # otherwise pytest collects the class as a test

    PASSED = "PASSED"
    FAILED = "FAILED"
    ERROR = "ERROR"
    SKIPPED = "SKIPPED"
    XFAIL = "XFAIL"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class TestReport:
    """The status of every expected test, by list."""

    __test__ = False

    fail_to_pass: dict[str, TestStatus]
    pass_to_pass: dict[str, TestStatus]
    others: dict[str, TestStatus] = field(default_factory=dict)
    """Tests in neither list that the rule considered, such as an unexpected pass."""


@dataclass(frozen=True, slots=True)
class TestLog:
    """The whole log of a test run: an object of the store, with its size and digest."""

    __test__ = False

    key: str
    """The key of the object, packed with zstd; empty if it could not be written."""
    bytes: int
    """The unpacked size."""
    sha256: str
    """The digest of the unpacked bytes."""
    problem: str = ""
    """Why there is no object; empty if there is one."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The grader's result: the status, the tests behind it, and the end of the log."""

    status: VerdictStatus
    report: TestReport
    integrity: tuple[str, ...] = ()
    """Findings about tampering and about gaps in the log, for people and policies."""
    log_tail: str = ""
    """The end of the test log, for people."""
    duration_s: float = 0.0
    odds: float | None = None
    """The odds of a patch that resolves the task by guessing what its tests expect; None, and
    absent from the stored form, if nothing was resolved or proven."""
    unproven: str = ""
    """Why nobody can tell whether this resolved verdict is earned: a property of the task's tests.
    Absent from the stored form if it is proven, or not resolved."""
    scores: dict[str, float] = field(default_factory=dict)
    """Rewards that the task's own tests wrote, by name; empty if tests only have a status."""
    test_log: TestLog | None = None
    """None, and absent from the stored form, if no tests ran or no log is stored."""

    @property
    def resolved(self) -> bool:
        """Whether the task is solved."""
        return self.status is VerdictStatus.RESOLVED

    def __repr__(self) -> str:
        tests = len(self.report.fail_to_pass) + len(self.report.pass_to_pass)
        findings = f", {len(self.integrity)} findings" if self.integrity else ""
        return f"<Verdict {self.status}: {tests} tests{findings}>"


@dataclass(frozen=True, slots=True)
class RewardTerm:
    """One named part of a reward."""

    name: str
    score: float
    weight: float = 1.0
    model: str = ""
    """The model that gave the score, as its API names it; empty if none did."""
    answer: str = ""
    """The response of that model, or the end of a long one."""


@dataclass(frozen=True, slots=True)
class Reward:
    """Named terms; `value` is their weighted sum. Ungraded trajectories have no reward."""

    terms: tuple[RewardTerm, ...]

    @property
    def value(self) -> float:
        """The scalar reward for trainers."""
        return sum(term.score * term.weight for term in self.terms)

    def __repr__(self) -> str:
        terms = ", ".join(f"{term.name} {term.score:g} × {term.weight:g}" for term in self.terms)
        return f"<Reward {self.value:g}: {terms}>"
