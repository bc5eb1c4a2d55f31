"""What all workers have done together: their shares, added up, never going back.

Every worker counts its whole share, earlier workers' commits included. While the share of an index
is not known, because its pod is being replaced and this operator has not seen the last one, the
sum is short; then the sum as written before stays, as a whole. One snapshot instead of a maximum
of each counter: figures that are shown together come from one moment.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from swe_rollout.spec.status import EpisodeCounts

if TYPE_CHECKING:
    from collections.abc import Collection

    from rollout_operator.observed import Observed
    from swe_rollout.spec.status import RolloutJobStatus, WorkerProgress


@dataclass(frozen=True, slots=True)
class Counts:
    """Episodes of a job, counted."""

    episodes: EpisodeCounts
    stop_reasons: dict[str, int]
    failures: dict[str, int]
    reward_sum: float

    @classmethod
    def of(cls, observed: Observed, previous: RolloutJobStatus) -> Self:
        """The sum over all shares, or what was written before while shares are missing."""
        running = sum(
            share.episodes.running
            for pod in observed.newest_pods
            if pod.running and (share := pod.progress) is not None
        )
        total = cls._sum(observed.shares.values())
        if total.episodes.committed < previous.episodes.committed:
            total = cls(
                previous.episodes, previous.stop_reasons, previous.failures, previous.reward_sum
            )
        planned = max(total.episodes.total, previous.episodes.total)
        episodes = total.episodes.model_copy(update={"running": running, "total": planned})
        return cls(episodes, total.stop_reasons, total.failures, total.reward_sum)

    @classmethod
    def _sum(cls, shares: Collection[WorkerProgress]) -> Self:
        each = [share.episodes for share in shares]
        stop_reasons, failures = Counter[str](), Counter[str]()
        for share in shares:
            stop_reasons.update(share.stop_reasons)
            failures.update(share.failures)
        return cls(
            EpisodeCounts(
                total=sum(counts.total for counts in each),
                committed=sum(counts.committed for counts in each),
                resolved=sum(counts.resolved for counts in each),
                unresolved=sum(counts.unresolved for counts in each),
                masked=sum(counts.masked for counts in each),
            ),
            dict(sorted(stop_reasons.items())),
            dict(sorted(failures.items())),
            sum(share.reward_sum for share in shares),
        )

    @property
    def graded(self) -> int:
        """Episodes whose patch was judged."""
        return self.episodes.resolved + self.episodes.unresolved

    @property
    def mean_reward(self) -> float | None:
        """Over the graded episodes; none when there is none."""
        return self.reward_sum / self.graded if self.graded else None
