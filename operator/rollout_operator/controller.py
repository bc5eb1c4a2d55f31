"""JobController: reconcile one job whenever something about it changes.

Watches report changes quickly, while lists report the truth: a controller lists when it starts,
every minute, and while it waits for a deletion. Nothing in its memory needs to survive the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_exponential

from rollout_operator.actions import Action, ApplyPrerequisites, RecordEvent
from rollout_operator.execute import carry_out, why
from rollout_operator.kube import Kube
from rollout_operator.metrics import Metrics
from rollout_operator.observed import Observed, ObservedJob, WorkerJob, WorkerPod, sights_of
from rollout_operator.reconcile import (
    ACTIVE_INTERVAL_S,
    COUNTS_INTERVAL_S,
    IDLE_INTERVAL_S,
    SPEC_CHANGE_S,
    differs_in_counts_only,
    expects_no_sandboxes,
    reconcile,
)
from rollout_operator.sightings import Sight, Sightings, Stage
from rollout_operator.status import is_over, with_failed_round
from swe_rollout.errors import ClusterError, is_down
from swe_rollout.spec.status import RolloutJobStatus, WorkerProgress

log = structlog.get_logger()

_LIST_INTERVAL_S = 60.0
_MISSING_PODS_S = 3.0
"""How long a worker Job's first pods may take to appear before its events are read."""


class JobController:
    """Runs the reconcile rounds of one job: `start` it once, pass it changes, `stop` it."""

    def __init__(self, job: ObservedJob, kube: Kube, metrics: Metrics, *, image: str) -> None:
        self.job = job
        self._kube = kube
        self._metrics = metrics
        self._image = image
        self._workers: WorkerJob | None = None
        self._owners: set[str] = set()
        """The uids of all worker Jobs so far: the owners of this job's workers."""
        self._dividing = ""
        """The uid of the worker Job whose workers divide the tasks now."""
        self._pods: dict[str, WorkerPod] = {}
        self._progress: dict[int, WorkerProgress] = {}
        self._prerequisites_applied_at: float | None = None
        self._sightings = Sightings()
        self._refusal = ""
        self._listed_at = -_LIST_INTERVAL_S
        self._status_written_at = -COUNTS_INTERVAL_S
        self._spec_changed_at = -SPEC_CHANGE_S
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"job-{self.job.metadata.name}")

    async def stop(self) -> None:
        """Cancel the current round; another one would repeat it."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def on_job(self, changed: ObservedJob) -> None:
        """Apply a change of the job, except of its status, which only we write."""
        before, self.job = self.job, replace(changed, status=self.job.status)
        new, old = self.job.metadata, before.metadata
        # Changes of the status are our own and need no round.
        if (new.generation, new.deletion_timestamp) != (old.generation, old.deletion_timestamp):
            self._spec_changed_at = time.monotonic()
            self._changed.set()

    def on_workers(self, workers: WorkerJob, *, deleted: bool) -> None:
        """Apply a change of the worker Job if the job is its controller."""
        if workers.metadata.controller_uid == self.job.metadata.uid:
            self._workers = None
            self._take_over(None if deleted else workers)
            self._changed.set()

    def on_pod(self, pod: WorkerPod, *, deleted: bool) -> None:
        """Apply a change of a pod if it is one of the job's workers."""
        if self._remember(pod):
            if deleted:
                self._pods.pop(pod.metadata.uid, None)
            self._changed.set()

    async def _run(self) -> None:
        # A failed round is repeated after 4 s, 8 s, … 30 s, or when something changes.
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(Exception),
            wait=wait_exponential(multiplier=2 * ACTIVE_INTERVAL_S, max=IDLE_INTERVAL_S),
            sleep=self._wait_for_change,
            before_sleep=self._log_failure,
        )
        while True:
            await self._wait_for_change(await retrying(self._timed_round))

    async def _wait_for_change(self, seconds: float | None) -> None:
        """Wait for a change, for at least the minimum between rounds and at most `seconds`."""
        # This also bounds the rate of status writes.
        await asyncio.sleep(ACTIVE_INTERVAL_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if seconds is None else seconds - ACTIVE_INTERVAL_S):
                await self._changed.wait()

    def _log_failure(self, state: RetryCallState) -> None:
        me = self.job.metadata
        error = state.outcome.exception() if state.outcome is not None else None
        log.warning("round_failed", job=me.name, namespace=me.namespace, why=str(error))

    async def _timed_round(self) -> float | None:
        self._changed.clear()
        with self._metrics.round():
            try:
                return await self._round()
            except Exception as error:
                # An error caused by one job becomes its condition; other jobs' rounds continue.
                if not is_down(error):
                    await self._report(error)
                raise

    async def _report(self, error: Exception) -> None:
        status = with_failed_round(self.job, why(error), datetime.now(UTC))
        if status != self.job.status:
            await self._kube.write_status(self.job.metadata, status, before=self.job.status)
            self.job = replace(self.job, status=status)

    async def _round(self) -> float | None:
        """Observe, decide, act, write the status; return the seconds to the next round."""
        now = datetime.now(UTC)
        checks_sandboxes = expects_no_sandboxes(self.job)
        if checks_sandboxes or time.monotonic() - self._listed_at > _LIST_INTERVAL_S:
            await self._list()
        observed = await self._observe(checks_sandboxes=checks_sandboxes)
        plan = reconcile(self.job, observed, now, image=self._image)
        for action in plan.actions:
            if not await self._carry_out(action):
                break  # the following actions rely on it: workers need their own account
        if plan.status == self.job.status:
            return plan.next_round_s
        if (delay_s := self._write_delay_s(plan.status)) > 0:
            return delay_s if plan.next_round_s is None else min(delay_s, plan.next_round_s)
        await self._kube.write_status(self.job.metadata, plan.status, before=self.job.status)
        self._metrics.status_written()
        self._status_written_at = time.monotonic()
        self.job = replace(self.job, status=plan.status)
        for event in plan.events:
            await self._carry_out(event)
        return plan.next_round_s

    def _write_delay_s(self, status: RolloutJobStatus) -> float:
        """Return how long a new status may wait: counts are not urgent, and writes are costly."""
        spec_changed = time.monotonic() - self._spec_changed_at < SPEC_CHANGE_S
        if differs_in_counts_only(self.job.status, status) and not spec_changed:
            return max(0.0, self._status_written_at + COUNTS_INTERVAL_S - time.monotonic())
        return 0.0

    async def _list(self) -> None:
        me = self.job.metadata
        found = await self._kube.worker_job(me.namespace, me.name)
        is_ours = found is not None and found.metadata.controller_uid == me.uid
        self._workers = None
        self._take_over(found if is_ours else None)
        self._pods = {}
        for pod in await self._kube.worker_pods(me.namespace, me.name):
            self._remember(pod)
        self._listed_at = time.monotonic()

    async def _observe(self, *, checks_sandboxes: bool) -> Observed:
        me, now_s = self.job.metadata, time.monotonic()
        left = await self._kube.has_sandboxes(me) if checks_sandboxes else None
        over, applied_at = is_over(self.job.status), self._prerequisites_applied_at
        pods = tuple(self._pods.values())
        sights = sights_of(self.job, self._workers, pods, is_over=over)
        seen_for_s = self._sightings.update(sights, now_s)

        def by_age(pod: WorkerPod) -> tuple[float, bool, datetime]:
            # If two are seen for the first time and one has ended, the other one is newer.
            return -seen_for_s[pod.metadata.uid, Stage.THERE], pod.live, _created_at(pod)

        return Observed(
            workers=self._workers,
            pods=tuple(sorted(pods, key=by_age)),
            progress=dict(self._progress),
            sandboxes_left=left,
            seen_for_s=seen_for_s,
            prerequisites_applied_s=None if applied_at is None else now_s - applied_at,
            refusal=self._refusal or await self._missing_pods_reason(seen_for_s),
        )

    async def _missing_pods_reason(self, seen_for_s: Mapping[Sight, float]) -> str:
        """Return why the worker Job has too few pods; empty if it has enough."""
        workers = self._workers
        if workers is None or workers.finished or workers.spec.suspend:
            return ""
        there_s = seen_for_s.get((workers.metadata.uid, Stage.THERE), 0.0)
        indexes = {pod.index for pod in self._pods.values()}
        if len(indexes) >= workers.spec.completions or there_s < _MISSING_PODS_S:
            return ""
        created = workers.metadata.creation_timestamp or datetime.min.replace(tzinfo=UTC)
        newest = max((_created_at(pod) for pod in self._pods.values()), default=created)
        return await self._kube.refusal(
            workers.metadata.namespace, workers.metadata.uid, since=newest
        )

    async def _carry_out(self, action: Action) -> bool:
        """Carry out the action; return whether the cluster accepted it."""
        me = self.job.metadata
        kind = type(action).__name__
        self._metrics.action_started(kind)
        try:
            workers = await carry_out(action, self.job, self._kube)
        except ClusterError as error:
            log.warning("action_refused", action=kind, job=me.name, why=str(error))
            if not isinstance(action, RecordEvent):
                self._refusal = why(error)
            return False
        if not isinstance(action, RecordEvent):
            self._refusal = ""
        self._take_over(workers)
        if isinstance(action, ApplyPrerequisites):
            self._prerequisites_applied_at = time.monotonic()
        log.info("action_done", action=kind, job=me.name, namespace=me.namespace)
        return True

    def _take_over(self, workers: WorkerJob | None) -> None:
        """Store the worker Job, and remember it as an owner of workers."""
        if workers is None:
            return
        self._workers = workers
        if workers.metadata.uid not in self._owners:
            # Its workers may divide the tasks differently; don't count an episode in two shards.
            self._owners.add(workers.metadata.uid)
            self._dividing = workers.metadata.uid
            self._progress.clear()

    def _remember(self, pod: WorkerPod) -> bool:
        """Store the pod if it is a worker of the job: labels can be forged, owners can't.

        Keep the furthest progress of its index too, because a new worker knows less than its
        predecessor did.
        """
        if pod.metadata.controller_uid not in self._owners or pod.index < 0:
            return False
        self._pods[pod.metadata.uid] = pod
        if pod.metadata.controller_uid != self._dividing:
            return True
        new, known = pod.progress, self._progress.get(pod.index)
        if new is not None and (
            known is None or new.episodes.committed >= known.episodes.committed
        ):
            self._progress[pod.index] = new
        return True


def _created_at(pod: WorkerPod) -> datetime:
    return pod.metadata.creation_timestamp or datetime.min.replace(tzinfo=UTC)
