"""The failure budget of a job: how many of its finished episodes may be masked.

`CommittedCounts` counts what this process commits on top of what was there before.
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
    """What the failure budget counts besides the commits of this process."""

    finished: int = 0
    """Episodes that earlier processes committed of the same share of the job."""
    masked: int = 0
    """Episodes that earlier processes committed masked."""
    elsewhere: int = 0
    """Episodes of other workers, as if all were finished and none masked. So no worker takes its
    own share for the job; who knows all shares, such as the operator, stops the job earlier."""

    def and_one(self, trajectory: Trajectory) -> CountedBefore:
        """Return the counts with one more record of an earlier process."""
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
        """Count one more record. Raises BudgetSpentError when it is masked and too many are."""
        self._finished += 1
        if trajectory.failure is not None:
            self._last_failure = f"; the last one: {trajectory.failure.message}"
        if trajectory.masked:
            # Only then: a job whose cause was fixed goes on, whatever it had masked before.
            self._masked += 1
            self.check(at_least=BUDGET_FLOOR)

    def check(self, *, at_least: int = 0) -> None:
        """Raise BudgetSpentError when too many were masked; fewer count as `at_least` finished."""
        if self._budget.is_spent(self._masked, self._finished, at_least=at_least):
            allowed = self._budget.max_masked_fraction
            others = ", those of other workers counted as good" if self._elsewhere else ""
            raise BudgetSpentError(
                "the failure budget is spent",
                why=f"{self._masked} of {self._finished} episodes were masked{others}, which have "
                f"no reward; spec.failureBudget.maxMaskedFraction allows {allowed:g} of them"
                f"{self._last_failure}",
                fix="fix the cause (`swe-rollout status` lists the failures), then run again; "
                "committed episodes stay",
            )
