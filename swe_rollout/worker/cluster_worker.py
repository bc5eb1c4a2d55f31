"""Run one worker of a RolloutJob on a cluster: its shard of the episodes, until all are committed.

The worker reads the job from the API server, follows `parallelism` and `suspend` while it runs,
publishes its progress as an annotation on its own pod, and drains on a request to stop. The
episodes are run by the same `EpisodeScheduler` as in `worker.job`. Used by `swe-rollout worker`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_fixed

from swe_rollout.cluster.client import ClusterClient
from swe_rollout.cluster.job_objects import ClusterJob, JobObject, read_cluster_job
from swe_rollout.cluster.jobs import Jobs
from swe_rollout.cluster.transport import SETTLING_S
from swe_rollout.errors import (
    ClusterError,
    PrerequisiteError,
    SweRolloutError,
    UnreachableError,
    cancel_all,
)
from swe_rollout.events import Subscriber
from swe_rollout.spec.addresses import is_worker
from swe_rollout.spec.job import RolloutJob
from swe_rollout.spec.status import REACHES_API_S, WorkerProgress
from swe_rollout.store.plans import Owner
from swe_rollout.worker.backlog import Shard
from swe_rollout.worker.progress_report import LAST_WRITE_S, Reporter, ShardProgress
from swe_rollout.worker.scheduler import EpisodeScheduler
from swe_rollout.worker.service_health import LONGEST_PAUSE_S, Conditions, back_off
from swe_rollout.worker.startup import WorkerStartup, on_cluster

log = structlog.get_logger()

DRAIN_S = 10.0
"""How long commits and pod deletions may continue after a stop."""
CANCEL_S = 3.0
"""How long the remaining work may take to end after it is cancelled."""


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """Which worker of which job this is."""

    namespace: str
    job: str
    index: int
    count: int | None
    """Workers of the job; None to take the number from its spec."""
    pod: str
    """The pod of this worker, which carries the annotation."""
    lives: Path | None = None
    """The file that counts how often the worker was killed; None to not count."""


MOST: Final = 5
"""Consecutive lives allowed without a durable turn or a committed episode."""


class KilledTooOftenError(SweRolloutError):
    """A worker was killed repeatedly without making progress in between."""


class Lives:
    """Counts a worker's lives since it last made progress, in a file that survives restarts.

    Kubernetes restarts a killed container in place, without limit: a worker that needs more memory
    than it has would be killed until its job is deleted.
    """

    def __init__(self, file: Path | None) -> None:
        """`file` lies on a volume of the pod; None disables counting."""
        self._file = file
        self._count = 0

    def begin(self) -> None:
        """Count one more life. Raises KilledTooOftenError if there were too many."""
        count = self._read() + 1
        if count > MOST:
            raise KilledTooOftenError(
                f"the worker was killed {MOST} times and got no further in between",
                why="no turn was written to the store; most of the time it has too little memory",
                fix="raise spec.workers.resources.memory, or lower spec.parallelism",
            )
        self._write(count)
        if count > 1:
            log.info("worker_restarted", lives=count)

    def progressed(self) -> None:
        """Reset the count, because a turn is durable."""
        if self._count:
            self._write(0)

    def _read(self) -> int:
        try:
            return int(self._file.read_text()) if self._file is not None else 0
        except (OSError, ValueError):
            return 0  # first life, or killed while writing the file

    def _write(self, count: int) -> None:
        self._count = count
        try:
            if self._file is not None:
                self._file.write_text(f"{count}")
        except OSError as error:
            log.warning("lives_not_counted", why=str(error))


class WorkerExit(StrEnum):
    """How a worker ended."""

    FINISHED = "finished"
    """Its entire shard is committed."""
    DRAINED = "drained"
    """It was asked to stop, and episodes remain."""


async def work(
    identity: WorkerIdentity, *, stop: asyncio.Event, observer: Subscriber | None = None
) -> WorkerExit:
    """Run this worker's shard of its job, or stop early once `stop` is set.

    `observer` receives every event.

    Raises errors that concern the whole job (an unusable spec, dataset or cluster), and
    KilledTooOftenError, which concerns this worker only.
    """
    is_worker.set(True)
    lives = Lives(identity.lives)
    lives.begin()
    # Its role was created a moment ago: the API server may not have seen it yet.
    client = await ClusterClient.connect(retry_timeout_s=REACHES_API_S, settling_s=SETTLING_S)
    try:
        reading = read_cluster_job(client, identity.namespace, identity.job)
        found = await _unless_stopped(reading, stop)
        if found is None:
            return WorkerExit.DRAINED
        return await _Worker(identity, found, client, observer, lives).run(stop)
    finally:
        await client.aclose()


class _Worker:
    """One life of a worker."""

    def __init__(
        self,
        identity: WorkerIdentity,
        found: ClusterJob,
        client: ClusterClient,
        observer: Subscriber | None,
        lives: Lives,
    ) -> None:
        self._identity = identity
        self._client = client
        self._conditions = Conditions()
        self._startup = WorkerStartup(
            job=on_cluster(found.job, identity.namespace),
            shard=_shard(identity, found.job),
            owner=found.owner,
            store_owner=Owner(identity.namespace, client.cluster),
            conditions=self._conditions,
            is_wanted=self._is_wanted,
            observer=observer,
            on_progress=lives.progressed,
        )
        self._progress = ShardProgress(self._conditions)
        self._reporter = Reporter(
            client, namespace=identity.namespace, pod=identity.pod, progress=self._snapshot
        )
        self._size = 0
        """Concurrent episodes that the job's object currently asks of this worker."""
        self._scheduler: EpisodeScheduler | None = None
        self._finished = False

    async def run(self, stop: asyncio.Event) -> WorkerExit:
        """Work until the end, and publish the final progress."""
        reporting = asyncio.create_task(self._reporter.run(), name="reporter")
        try:
            await self._until_over(stop)
        finally:
            await cancel_all(reporting)
            # A worker that has finished has time: its successor would read everything again.
            within_s = REACHES_API_S if self._finished else LAST_WRITE_S
            is_published = await self._reporter.write_last(within_s)
        if self._finished and not is_published:
            raise UnreachableError(
                "the worker's final progress can't be published",
                why="the API server did not accept the annotation on the worker's pod",
                fix="nothing: the next worker finds the share committed, and publishes that",
            )
        return WorkerExit.FINISHED if self._finished else WorkerExit.DRAINED

    async def _until_over(self, stop: asyncio.Event) -> None:
        """Work until the shard is done, the job is deleted, or `stop` is set."""
        doing = asyncio.create_task(self._roll_out(), name="roll-out")
        following = asyncio.create_task(self._follow(), name="follow-job")
        stopped = asyncio.create_task(stop.wait(), name="stop")
        try:
            await asyncio.wait({doing, following, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not doing.done():
                await self._drain(doing)
            elif not doing.cancelled():
                doing.result()
            if following.done():
                following.result()
        finally:
            await cancel_all(doing, following, stopped)

    async def _drain(self, doing: asyncio.Task[None]) -> None:
        """Cancel running episodes and end their sandboxes; let commits finish."""
        log.info("draining", running=self._running)
        if self._scheduler is None:
            doing.cancel()
        else:
            self._scheduler.close()
            self._scheduler.drop()
        await asyncio.wait({doing}, timeout=DRAIN_S)
        doing.cancel()
        await asyncio.wait({doing}, timeout=CANCEL_S)

    async def _follow(self) -> None:
        """Apply changes to the job's object until it is deleted or replaced.

        While the object can't be read, the last known values apply, also where that is refused: by
        a server that has just started, or because the worker's rights were deleted with its job.
        """
        await AsyncRetrying(
            retry=retry_if_exception_type((UnreachableError, ClusterError, PrerequisiteError)),
            wait=wait_fixed(LONGEST_PAUSE_S),
            before_sleep=_log_retry("job_not_followed"),
        )(self._follow_once)

    async def _follow_once(self) -> None:
        async for seen in Jobs(self._client).follow(self._identity.namespace, self._identity.job):
            if self._is_gone(seen):
                return
            self._resize(seen)

    async def _is_wanted(self) -> bool:
        """Whether the job still exists and this worker may act for it."""
        try:
            seen = await Jobs(self._client).find(self._identity.namespace, self._identity.job)
        except PrerequisiteError:
            return False  # the service account is deleted with the job
        except (UnreachableError, ClusterError):
            return True
        return seen is not None and not self._is_gone(seen) and not seen.spec.suspend

    def _is_gone(self, seen: JobObject) -> bool:
        is_another = seen.metadata.uid != self._startup.owner.uid
        return is_another or seen.metadata.deletion_timestamp is not None

    def _resize(self, seen: JobObject) -> None:
        wanted = self._startup.shard.parallelism(seen.spec.parallelism)
        size = 0 if seen.spec.suspend else wanted
        if size == self._size:
            return
        log.info("resized", was=self._size, now=size, suspended=seen.spec.suspend)
        self._size = size
        if self._scheduler is not None:
            self._reporter.hurry()
            self._scheduler.resize(size)
            if seen.spec.suspend:
                self._scheduler.drop()

    async def _roll_out(self) -> None:
        async with AsyncExitStack() as stack:
            resources = await self._startup.resources(stack)
            self._progress = resources.progress
            if resources.backlog.todo:
                self._scheduler = await self._startup.scheduler(resources, stack)
                self._scheduler.resize(self._size)
                await _work(self._scheduler)
            self._finished = self._scheduler is None or not self._scheduler.left

    @property
    def _running(self) -> int:
        return 0 if self._scheduler is None else self._scheduler.running

    def _snapshot(self) -> WorkerProgress:
        return self._progress.snapshot(running=self._running, finished=self._finished)


async def _unless_stopped(
    call: Coroutine[None, None, ClusterJob], stop: asyncio.Event
) -> ClusterJob | None:
    """Return the result of the call, or None as soon as `stop` is set."""
    calling, stopped = asyncio.create_task(call), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({calling, stopped}, return_when=asyncio.FIRST_COMPLETED)
        return calling.result() if calling.done() else None
    finally:
        await cancel_all(calling, stopped)


async def _work(scheduler: EpisodeScheduler) -> None:
    """Work until nothing is left, even through outages longer than a request waits."""
    await AsyncRetrying(
        retry=retry_if_exception_type(UnreachableError),
        wait=back_off(),
        before_sleep=_log_retry("scheduler_stopped"),
    )(scheduler.work)


def _log_retry(event: str) -> Callable[[RetryCallState], None]:
    def record(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        log.warning(event, why=str(error))

    return record


def _shard(identity: WorkerIdentity, job: RolloutJob) -> Shard:
    count = identity.count or job.spec.worker_count
    if not 0 <= identity.index < count:
        raise PrerequisiteError(
            f"the job has no worker {identity.index}",
            why=f"it has {count}, counted from 0",
            fix="spec.workers.count and the completions of the worker Job must agree",
        )
    return Shard(identity.index, count)
