"""Publish a worker's progress: counts of its shard, as an annotation on its own pod.

`ShardProgress` counts, `Reporter` writes. Writes are rare by design: the API server is shared.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import structlog

from swe_rollout.cluster.client import ClusterClient
from swe_rollout.cluster.objects import PODS
from swe_rollout.errors import ClusterError, UnreachableError
from swe_rollout.events import Phase
from swe_rollout.observer import Observer
from swe_rollout.spec.outcomes import OutcomeCounts
from swe_rollout.spec.status import (
    PROGRESS_ANNOTATION,
    ConditionType,
    EpisodeCounts,
    WorkerProgress,
)
from swe_rollout.types.episode import EpisodeId, Failure
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.turn import Turn
from swe_rollout.worker.service_health import Conditions

log = structlog.get_logger()

CHECK_S = 0.5
BETWEEN_WRITES_S = 2.0
WRITES_PER_EPISODE = 0.05
"""Writes earned per episode. With its pods, their deletion and the operator's status write after
this one, an episode stays under 2.5 writes where half of the patches resolve their tasks."""
WRITE_EACH_S = 60.0
"""The time that earns one more write, for long episodes."""
BURST_WRITES = 2.0
"""The most unspent writes that are saved up."""
HURRIED_WRITES = 6.0
"""Writes allowed after a change to the job, because its author is watching."""
LAST_WRITE_S = 4.0
_IGNORED_FAILURES = "batch.kubernetes.io/job-index-ignored-failure-count"
"""By this count of a pod's predecessors, the Job controller delays its successor."""


class ShardProgress(Observer):
    """Counts all committed episodes of a worker's shard."""

    def __init__(
        self, conditions: Conditions, *, job: int = 0, on_commit: Callable[[], None] | None = None
    ) -> None:
        """`job` counts the whole job's episodes; `on_commit` is called after each own commit."""
        self._conditions = conditions
        self._job = job
        self._on_commit = on_commit
        self._masked_now = 0
        self._total = 0
        self._replaced = 0
        self._counts = OutcomeCounts()
        self._grading = set[EpisodeId]()
        self._awaiting_cache = 0

    def phase(self, episode: EpisodeId, phase: Phase) -> None:
        """Record which running episodes are being graded."""
        if phase is Phase.GRADE:
            self._grading.add(episode)
        else:
            self._grading.discard(episode)

    def retried(self, episode: EpisodeId, failure: Failure, attempt: int) -> None:  # noqa: ARG002
        """Record that the episode is no longer being graded."""
        self._grading.discard(episode)

    def planned(self, episodes: int, committed: int) -> None:  # noqa: ARG002
        """Record the size of the shard; committed episodes are counted one by one."""
        self._total = episodes

    def replaced_before(self, count: int) -> None:
        """Record the committed replacements, which the size of the shard includes."""
        self._replaced = count

    def replaced(self, failed: EpisodeId, by: EpisodeId) -> None:  # noqa: ARG002
        """Count one more episode, in place of one that failed."""
        self._total += 1
        self._replaced += 1

    def earlier(self, trajectory: Trajectory) -> None:
        """Count a trajectory that a predecessor committed."""
        self._counts.add(trajectory.outcome)

    def damaged(self) -> None:
        """Count an unreadable record as a failure of an uncommitted episode."""
        self._counts.failures["DamagedRecord"] += 1

    def turn(self, episode: EpisodeId, turn: Turn) -> None:  # noqa: ARG002
        """Mark the engine as ready, because it accepts calls and responds."""
        self._conditions.clear(ConditionType.MODEL_READY)

    def cache_awaited(self, starting: int, turns: int, held_tokens: int, cache_tokens: int) -> None:
        """Record how many running episodes wait for room in the engine's KV cache."""
        del held_tokens, cache_tokens
        self._awaiting_cache = starting + turns

    def done(self, trajectory: Trajectory) -> None:
        """Count a trajectory that this worker committed."""
        self._counts.add(trajectory.outcome)
        self._masked_now += trajectory.masked
        if self._on_commit is not None:
            self._on_commit()

    def snapshot(self, *, running: int, finished: bool) -> WorkerProgress:
        """Return the progress in the form that the operator reads."""
        counts = self._counts
        return WorkerProgress(
            episodes=self._episodes(running),
            stop_reasons=dict(sorted(counts.stop_reasons.items())),
            failures=dict(sorted(counts.failures.items())),
            reward_sum=round(counts.reward_sum, 6),
            unmet=self._conditions.unmet,
            finished=finished,
            planned=self._job,
            masked_now=self._masked_now,
        )

    def _episodes(self, running: int) -> EpisodeCounts:
        counts = self._counts
        return EpisodeCounts(
            total=self._total,
            committed=counts.committed,
            running=running,
            grading=min(len(self._grading), running),
            awaiting_cache=min(self._awaiting_cache, running),
            resolved=counts.resolved,
            unresolved=counts.unresolved,
            tampered=counts.tampered,
            unproven=counts.unproven,
            masked=counts.masked,
            replaced=self._replaced,
        )


class WriteAllowance:
    """The writes allowed now: earned by episodes and by time, with few saved up."""

    def __init__(self) -> None:
        self._writes = BURST_WRITES
        self._committed = 0
        self._at_s = time.monotonic()

    def covers_one(self, committed: int) -> bool:
        """Whether a write is left, with `committed` episodes so far."""
        now_s = time.monotonic()
        earned = (committed - self._committed) * WRITES_PER_EPISODE
        earned += (now_s - self._at_s) / WRITE_EACH_S
        self._writes = max(self._writes, min(BURST_WRITES, self._writes + earned))
        self._committed, self._at_s = committed, now_s
        return self._writes >= 1

    def spend(self) -> None:
        """Spend one write."""
        self._writes = max(0.0, self._writes - 1)

    def refill(self) -> None:
        """Allow several writes soon."""
        self._writes = HURRIED_WRITES


class Reporter:
    """Keeps the annotation on the worker's own pod up to date."""

    def __init__(
        self,
        client: ClusterClient,
        *,
        namespace: str,
        pod: str,
        progress: Callable[[], WorkerProgress],
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._pod = pod
        self._progress = progress
        self._allowance = WriteAllowance()
        # The first one says that the worker runs, before it has read its dataset.
        self._written: WorkerProgress | None = None
        self._wrote_at_s = -BETWEEN_WRITES_S

    async def run(self) -> None:
        """Write each change when a write is due, until cancelled; a failed write is only logged."""
        while True:
            progress = self._progress()
            if self._is_due(progress):
                await self._write(progress)
            await asyncio.sleep(CHECK_S)

    def hurry(self) -> None:
        """Write the next changes soon, because somebody asked for them."""
        self._allowance.refill()

    async def write_last(self, within_s: float = LAST_WRITE_S) -> bool:
        """Write the final state, unless that takes too long; return whether it was written."""
        progress = self._progress()
        if progress == self._written:
            return True
        try:
            async with asyncio.timeout(within_s):
                await self._write(progress)
        except TimeoutError:
            log.warning("last_progress_not_written", pod=self._pod)
        return progress == self._written

    def _is_due(self, progress: WorkerProgress) -> bool:
        if progress == self._written or time.monotonic() - self._wrote_at_s < BETWEEN_WRITES_S:
            return False
        covered = self._allowance.covers_one(progress.episodes.committed)
        if covered or self._written is None:
            return True
        # A masked commit may spend the failure budget.
        urgent = (progress.unmet, progress.masked_now)
        return urgent != (self._written.unmet, self._written.masked_now)

    async def _write(self, progress: WorkerProgress) -> None:
        self._wrote_at_s = time.monotonic()
        value = progress.model_dump_json(by_alias=True)
        try:
            # Each time a pod was deleted or drained, its successor would wait twice as long.
            annotations = {PROGRESS_ANNOTATION: value, _IGNORED_FAILURES: None}
            patch = {"metadata": {"annotations": annotations}}
            await self._client.merge(PODS, self._namespace, self._pod, patch)
        except (ClusterError, UnreachableError) as error:
            log.warning("progress_not_written", pod=self._pod, why=str(error))
        else:
            self._allowance.spend()
            self._written = progress
