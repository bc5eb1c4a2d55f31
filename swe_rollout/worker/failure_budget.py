"""The failure budget of a job: how many of its finished episodes may be masked.

`CommittedCounts` adds this process's commits to earlier ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from swe_rollout.errors import SweRolloutError
from swe_rollout.spec.bounds import BUDGET_FLOOR
from swe_rollout.spec.limits import FailureBudget
from swe_rollout.types.trajectory import Trajectory


class BudgetSpentError(SweRolloutError):
    """Too many episodes were masked: something breaks them, or the policy ends its sandboxes."""


@dataclass(frozen=True, slots=True)
class CountedBefore:
    """Episodes that the failure budget counts besides those this process commits."""

    finished: int = 0
    """Episodes of the same shard that earlier processes committed."""
    masked: int = 0
    """Masked episodes among those that earlier processes committed."""
    elsewhere: int = 0
    """Episodes of other workers, assumed finished and not masked, so that no worker judges the job
    by its own shard. The operator, which knows all shards, stops the job earlier."""

    def and_one(self, trajectory: Trajectory) -> CountedBefore:
        """Return the counts plus one record of an earlier process."""
        masked = self.masked + trajectory.masked
        return replace(self, finished=self.finished + 1, masked=masked)


class CommittedCounts:
    """The committed episodes of a job, counted against its failure budget."""

    def __init__(self, budget: FailureBudget, before: CountedBefore) -> None:
        self._budget = budget
        self._finished = before.finished + before.elsewhere
        self._elsewhere = before.elsewhere
        self._masked = before.masked
        self._last_failure = ""

    def add(self, trajectory: Trajectory) -> None:
        """Count a record. Raises BudgetSpentError if it is masked and too many now are."""
        self._finished += 1
        if trajectory.failure is not None:
            self._last_failure = f"; the last one: {trajectory.failure.message}"
        if trajectory.masked:
            # Only then: after the cause is fixed, a job continues however many it had masked.
            self._masked += 1
            self.check(at_least=BUDGET_FLOOR)

    def check(self, *, at_least: int = 0) -> None:
        """Raise BudgetSpentError if too many were masked, of `at_least` finished ones or more."""
        if self._budget.is_spent(self._masked, self._finished, at_least=at_least):
            allowed = self._budget.max_masked_fraction
            others = ", those of other workers counted as good" if self._elsewhere else ""
            raise BudgetSpentError(
                "the failure budget is spent",
                why=f"{self._masked} of {self._finished} episodes were masked{others}, which have "
                f"no reward; spec.failureBudget.maxMaskedFraction allows {allowed:g} of them"
                f"{self._last_failure}",
                fix="fix the cause (`swe-rollout status` lists the failures), then run again with "
                "--rerun-masked, which takes changed files of --with, too; all else stays",
            )
