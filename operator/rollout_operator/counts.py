"""Add up the progress of all workers; the sum never decreases.

Every worker counts its whole shard, including earlier workers' commits. While the progress of an
index is unknown, because its pod is being replaced and this operator has not seen the last one, the
sum is too low; then all previous counts stay. They stay together, instead of taking each counter's
maximum, so that counts shown side by side come from the same moment.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Self

from rollout_operator.observed import Observed
from swe_rollout.spec.outcomes import OutcomeCounts
from swe_rollout.spec.status import EpisodeCounts, RolloutJobStatus, WorkerProgress


@dataclass(frozen=True, slots=True)
class Counts:
    """The episode counts of a job."""

    outcomes: OutcomeCounts
    total: int
    """Tasks times samples, and replacements, as reported by the workers."""
    running: int
    grading: int = 0
    """Running episodes that are being graded."""
    awaiting_cache: int = 0
    """Running episodes that wait for room in the engine's KV cache."""
    unknown: int = 0
    """Episodes of workers that have not reported yet."""
    replaced: int = 0
    """Failed episodes in whose place another was or will be played."""
    masked_now: int = 0
    """Masked episodes committed by workers of this job object, not of an earlier one."""

    @classmethod
    def of(cls, observed: Observed, previous: RolloutJobStatus) -> Self:
        """Add up all progress, or keep the previous counts while any is missing."""
        outcomes, total = OutcomeCounts(), previous.episodes.total
        for each in observed.progress.values():
            outcomes.merge(_outcomes(each))
        if outcomes.committed < previous.episodes.committed:
            outcomes = _outcomes(previous)
        else:
            planned = [each.episodes.total for each in observed.progress.values()]
            total = max(total, sum(planned))
        known = observed.progress.values()
        whole = max((each.planned for each in known), default=0)
        replaced = sum(each.episodes.replaced for each in known)
        unknown = max(0, whole + replaced - sum(each.episodes.total for each in known))
        replaced = max(replaced, previous.episodes.replaced)
        masked_now = sum(each.masked_now for each in known)
        live = [
            progress.episodes
            for pod in observed.newest_pods
            if pod.running and (progress := pod.progress) is not None
        ]
        return cls(
            outcomes,
            total,
            running=sum(each.running for each in live),
            grading=sum(each.grading for each in live),
            awaiting_cache=sum(each.awaiting_cache for each in live),
            unknown=unknown,
            replaced=replaced,
            masked_now=masked_now,
        )

    @property
    def episodes(self) -> EpisodeCounts:
        """Return the counts in the form of a status."""
        return EpisodeCounts(
            total=self.total,
            committed=self.outcomes.committed,
            running=self.running,
            grading=self.grading,
            awaiting_cache=self.awaiting_cache,
            resolved=self.outcomes.resolved,
            unresolved=self.outcomes.unresolved,
            tampered=self.outcomes.tampered,
            unproven=self.outcomes.unproven,
            masked=self.outcomes.masked,
            replaced=self.replaced,
        )


def _outcomes(counted: WorkerProgress | RolloutJobStatus) -> OutcomeCounts:
    episodes = counted.episodes
    return OutcomeCounts(
        committed=episodes.committed,
        resolved=episodes.resolved,
        masked=episodes.masked,
        graded=episodes.resolved + episodes.unresolved,
        reward_sum=counted.reward_sum,
        tampered=episodes.tampered,
        unproven=episodes.unproven,
        stop_reasons=Counter(counted.stop_reasons),
        failures=Counter(counted.failures),
    )
