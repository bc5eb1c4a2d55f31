"""Failure budgets: how many masked episodes are too many, and of which ones."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from swe_rollout.spec.limits import FailureBudget
from swe_rollout.worker.failure_budget import BudgetSpentError, CommittedCounts, CountedBefore
from unit.worker.worker_parts import NO_IMAGE, attempts, trajectory


def commit(counts: CommittedCounts, *, masked: int, finished: int) -> None:
    """Commit so many episodes, those that failed first."""
    for attempt in attempts(finished):
        failure = NO_IMAGE if attempt.episode.sample < masked else None
        counts.add(trajectory(attempt, failure=failure))


@pytest.mark.threat(point=8)
@pytest.mark.parametrize(("masked", "spent"), [(0, False), (1, True), (2, True)])
def test_at_the_end_a_few_episodes_are_judged_as_they_are(*, masked: int, spent: bool) -> None:
    counts = CommittedCounts(FailureBudget(), CountedBefore())
    commit(counts, masked=masked, finished=4)
    with pytest.raises(BudgetSpentError) if spent else nullcontext():
        counts.check()


@pytest.mark.parametrize(
    ("before", "masked", "spent"),
    [
        (CountedBefore(finished=30, masked=6), 1, True),
        (CountedBefore(finished=31, masked=5), 1, False),
        # A worker whose own share fails is not the job: 3 of 28 at the least.
        (CountedBefore(elsewhere=25), 3, False),
        (CountedBefore(finished=5, masked=4, elsewhere=10), 1, True),
    ],
)
def test_a_budget_counts_earlier_processes_and_never_takes_one_share_for_the_job(
    before: CountedBefore, *, masked: int, spent: bool
) -> None:
    counts = CommittedCounts(FailureBudget(), before)
    with pytest.raises(BudgetSpentError) if spent else nullcontext():
        commit(counts, masked=masked, finished=masked)


def test_a_job_whose_cause_was_fixed_goes_on_and_is_judged_as_a_whole_at_its_end() -> None:
    counts = CommittedCounts(FailureBudget(), CountedBefore(finished=3, masked=3))
    commit(counts, masked=0, finished=9)
    with pytest.raises(BudgetSpentError, match="3 of 12"):
        counts.check()
