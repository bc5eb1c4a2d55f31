"""WarmPool: pods that wait, with a running supervisor, for the next episodes.

`prewarm` announces the next requests, soonest first; the pool keeps pods ready for the first ones,
within the limits of the spec, and retires pods that no request needs. A claim is one patch of
labels that only one claimer can make. A failure here costs a head start, never an episode:
`provider` then starts a pod as if there were no pool.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import structlog

from swe_rollout.cluster.api_error import ApiError
from swe_rollout.cluster.objects import PODS, Pod
from swe_rollout.errors import ClusterError, PrerequisiteError, SandboxError, UnreachableError
from swe_rollout.sandbox.base import SandboxRequest
from swe_rollout.sandbox.pods import diagnose, warm_spec
from swe_rollout.sandbox.pods.launch import PodLaunch, start_pod
from swe_rollout.sandbox.pods.pod_spec import RunIdentity, lifetime_s, pod_name, with_template
from swe_rollout.sandbox.pods.running import PodRuntime, RunningPod
from swe_rollout.spec.sandbox import PodSandbox
from swe_rollout.text.logs import shared_context

log = structlog.get_logger()

POLL_S = 1.0
"""The pause between two checks of the waiting pods."""
CLAIM_S = 10.0
"""Time limit of a claim and its first command; a slower pod is no faster than a new one."""
COOLDOWN_S = 30.0
"""How long no pod is started after a failed start, or after pods made room for an episode."""
_FAILURES = (SandboxError, ClusterError, UnreachableError, PrerequisiteError)


@dataclass(frozen=True, slots=True)
class _WarmPod:
    """A ready pod that no request has claimed."""

    image: str
    pod: RunningPod
    created_s: float
    ready_s: float
    lifetime_s: float
    """Time from the pod's creation until it ends by itself."""

    def outlives(self, request: SandboxRequest) -> bool:
        """Whether the pod lives as long as the request requires."""
        return time.monotonic() - self.created_s + lifetime_s(request) <= self.lifetime_s


@dataclass(eq=False, slots=True)
class _WarmStart:
    """A pod that is being started."""

    image: str
    lifetime_s: float
    grading_s: float
    task: asyncio.Task[_WarmPod | None] = field(init=False)


class WarmPool:
    """The waiting pods of one run. Use it inside one event loop; `aclose` ends them."""

    def __init__(
        self, runtime: PodRuntime, spec: PodSandbox, *, job: str, owner: RunIdentity
    ) -> None:
        """Start nothing before the first `prewarm`; `spec.warm` has the limits."""
        self._runtime = runtime
        self._spec = spec
        self._job = job
        self._owner = owner
        self._demand = warm_spec.WarmDemand()
        self._ready: list[_WarmPod] = []
        self._starts: list[_WarmStart] = []
        self._tasks: set[asyncio.Task[None] | asyncio.Task[_WarmPod | None]] = set()
        self._changed = asyncio.Event()
        self._resume_at_s = -math.inf
        """No pod is started before this time."""
        self._snapshots = False
        """Whether an expected request asks for snapshots."""
        self._tasks.add(
            asyncio.create_task(self._run(), name="warm-pool", context=shared_context())
        )

    async def aclose(self) -> None:
        """Start no more pods, and end every unclaimed pod. Idempotent."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._close_ready()

    @property
    def ready(self) -> int:
        """The number of pods that could be claimed now."""
        return len(self._ready)

    def prewarm(self, requests: Sequence[SandboxRequest]) -> None:
        """Replace the expected requests, soonest first."""
        self._demand.expect(requests)
        self._snapshots = any(request.snapshots for request in requests)
        self._changed.set()

    async def claim(self, request: SandboxRequest) -> RunningPod | None:
        """Assign a pod to the request and return it; None when there is none to claim.

        A pod that is starting is awaited: it has a head start. Raises SandboxError if the image has
        no such workdir.
        """
        self._demand.fulfil(request)
        self._changed.set()
        while (found := await self._next_pod(request)) is not None:
            async with AsyncExitStack() as cleanup:
                cleanup.push_async_callback(found.pod.close)
                if await self._assign(found, request):
                    cleanup.pop_all()
                    return found.pod
        return None

    async def release_all(self) -> bool:
        """End all waiting and starting pods to free capacity; return whether there were any."""
        self._resume_at_s = time.monotonic() + COOLDOWN_S
        starts, self._starts = self._starts, []
        for start in starts:
            start.task.cancel()
        ended = await asyncio.gather(*(start.task for start in starts), return_exceptions=True)
        # One that was up a moment before, and that `_collect` no longer finds.
        self._ready += [found for found in ended if isinstance(found, _WarmPod)]
        return await self._close_ready() or bool(starts)

    async def _next_pod(self, request: SandboxRequest) -> _WarmPod | None:
        """Take a pod of the image that lives long enough out of the pool, ready or starting."""
        for found in list(self._ready):
            if found.image == request.image and found.outlives(request):
                self._ready.remove(found)
                if self._is_alive(found):
                    return found
                self._retire(found)
        required_s = lifetime_s(request) + self._spec.start_seconds
        for start in self._starts:
            if start.image == request.image and start.lifetime_s >= required_s:
                return await self._started(start)
        return None

    async def _started(self, start: _WarmStart) -> _WarmPod | None:
        """Take a start out of the pool and wait for its pod."""
        self._starts.remove(start)
        try:
            await asyncio.wait({start.task})
        except asyncio.CancelledError:
            self._starts.append(start)  # for the next claim, or to wait
            self._collect(start)
            raise
        return None if start.task.cancelled() else start.task.result()

    async def _assign(self, found: _WarmPod, request: SandboxRequest) -> bool:
        """Assign the pod to the request; False when it can't be claimed any more."""
        age_s = time.monotonic() - found.created_s
        name = found.pod.name
        try:
            async with asyncio.timeout(CLAIM_S):
                pod = await self._patch(found.pod.pod, request, age_s)
                if pod is None:
                    return False
                wanted = pod_name(request, self._owner)
                found.pod.assign(pod, request_name=wanted, workdir=request.workdir)
                await found.pod.check_workdir()
        except (SandboxError, ClusterError, UnreachableError, TimeoutError) as error:
            if isinstance(error, SandboxError) and not error.retryable:
                raise
            if isinstance(error, ApiError) and error.forbidden:
                self._resume_at_s = math.inf
            log.warning("warm_pod_lost", pod=name, why=str(error))
            return False
        log.info("warm_pod_claimed", pod=name, waited_s=round(time.monotonic() - found.ready_s, 1))
        return True

    async def _patch(self, pod: Pod, request: SandboxRequest, age_s: float) -> Pod | None:
        """Label the pod as the request's; return None if another claimer was first."""
        namespace = self._runtime.namespace
        try:
            return await self._runtime.client.patch(
                PODS,
                namespace,
                pod.metadata.name,
                warm_spec.claim_patch(pod, request, age_s=age_s),
            )
        except ApiError as error:
            if not error.invalid:
                raise
        # The patch was already made, perhaps by us: a response may have been lost.
        current = await self._runtime.client.get(PODS, namespace, pod.metadata.name)
        return current if warm_spec.is_claimed_by(current, request, self._owner) else None

    async def _run(self) -> None:
        """Adjust the pool after every change, and periodically while pods wait or are expected."""
        while True:
            self._adjust()
            self._changed.clear()
            try:
                async with asyncio.timeout(POLL_S if self._ready or self._demand else None):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _adjust(self) -> None:
        """Retire pods that are lost, too old or not needed; start those that are missing."""
        needed = self._demand.images
        for each in list(self._ready):
            is_young = time.monotonic() - each.ready_s < self._spec.warm.expiry_seconds
            if needed[each.image] and is_young and self._is_alive(each):
                needed[each.image] -= 1
            else:
                self._ready.remove(each)
                self._retire(each)
        if time.monotonic() >= self._resume_at_s:
            existing = Counter(each.image for each in self._ready)
            existing.update(each.image for each in self._starts)
            for image in self._demand.missing(existing, self._spec.warm):
                self._start(image)

    def _start(self, image: str) -> None:
        waiting_s = self._spec.start_seconds + self._spec.warm.expiry_seconds
        start = _WarmStart(
            image, waiting_s + self._demand.longest_deadline_s, self._demand.longest_grading_s
        )
        start.task = asyncio.create_task(self._bring_up(start), name=f"warm-{image}")
        start.task.add_done_callback(lambda _: self._collect(start))
        self._starts.append(start)
        self._tasks.add(start.task)

    def _collect(self, start: _WarmStart) -> None:
        """Add a started pod to the ready ones, unless a claim is awaiting it."""
        if start.task.done():
            self._tasks.discard(start.task)
            if start in self._starts:
                self._starts.remove(start)
                found = None if start.task.cancelled() else start.task.result()
                self._ready += [] if found is None else [found]
                self._changed.set()

    async def _bring_up(self, start: _WarmStart) -> _WarmPod | None:
        created_s = time.monotonic()
        try:
            pod = await self._launch(start)
        except _FAILURES as error:
            log.info("warm_pod_failed", image=start.image, why=str(error))
            self._resume_at_s = time.monotonic() + COOLDOWN_S
            return None
        return _WarmPod(start.image, pod, created_s, time.monotonic(), start.lifetime_s)

    async def _launch(self, start: _WarmStart) -> RunningPod:
        manifest = warm_spec.warm_manifest(
            start.image,
            job=self._job,
            lifetime_s=start.lifetime_s,
            grading_s=start.grading_s,
            sandbox=self._spec,
            owner=self._owner,
        )
        launch = PodLaunch(
            self._runtime,
            with_template(manifest, self._spec.template),
            on_start_warning=_log_quietly,
        )
        return await start_pod(
            launch, start_s=self._spec.start_seconds, workdir="/", ready=self._make_ready
        )

    async def _make_ready(self, pod: RunningPod) -> None:
        if self._snapshots:
            await pod.record()  # while nobody waits for the pod

    def _is_alive(self, each: _WarmPod) -> bool:
        """Whether the pod is alive as far as the watch knows."""
        pod = self._runtime.watch.pod(each.pod.pod.metadata.uid)
        return pod is not None and diagnose.loss_error(pod) is None

    def _retire(self, each: _WarmPod) -> None:
        log.info("warm_pod_retired", pod=each.pod.name, image=each.image)
        task = asyncio.create_task(each.pod.close(), name=f"retire-{each.pod.name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _close_ready(self) -> bool:
        closed, self._ready = self._ready, []
        await asyncio.gather(*(each.pod.close() for each in closed))
        return bool(closed)


def _log_quietly(error: SandboxError) -> None:
    """Log at debug level only: no episode needs the pod yet."""
    log.debug("warm_pod_start_delayed", why=str(error))
