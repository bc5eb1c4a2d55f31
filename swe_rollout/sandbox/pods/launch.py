"""PodLaunch: create one pod and wait until its container is ready, or explain why it is not.

The name of a pod is fixed by its request, so a repeated creation finds the pod that the first one
made; a pod that an earlier run left under that name is deleted first.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress

from tenacity import AsyncRetrying, RetryError, TryAgain, retry_never, stop_after_attempt

from swe_rollout.cluster.api_error import ApiError
from swe_rollout.cluster.objects import PODS, Json, KubernetesEvent, Pod
from swe_rollout.errors import ClusterError, SandboxError, UnreachableError
from swe_rollout.sandbox.pods import diagnose
from swe_rollout.sandbox.pods.diagnose import StartProblem
from swe_rollout.sandbox.pods.pod_spec import RUN_LABEL
from swe_rollout.sandbox.pods.running import PodRuntime, RunningPod, open_session

_NAME_FREE_S = 60.0
"""How long a pod of the same name may take to disappear."""
_NAME_POLL_S = 0.3
_CREATE_ATTEMPTS = 3
_UNDO_S = 10.0
_SCALING_S = 30.0
"""The pause between two checks whether a node is still being added."""


class PodLaunch:
    """Starts one pod. `undo` deletes it again, however far the start came."""

    def __init__(
        self,
        runtime: PodRuntime,
        manifest: Json,
        *,
        on_start_warning: Callable[[SandboxError], None],
        request_name: str = "",
    ) -> None:
        """Call `on_start_warning` with a start problem that may still resolve itself.

        `request_name` becomes free again when the sandbox is closed.
        """
        self.runtime = runtime
        self.request_name = request_name
        self._manifest = manifest
        self._name: str = manifest["metadata"]["name"]
        self._on_start_warning = on_start_warning

    async def run(self, *, start_s: float) -> Pod:
        """Create the pod and return it once its container is ready, within `start_s`."""
        self._pod = await self._create()
        try:
            async with asyncio.timeout(start_s):
                return await self._until_ready()
        except TimeoutError as error:
            late, waits = diagnose.slow_start_error(self._pod, start_s), self._problem()
            if waits is not None and isinstance(waits.error, diagnose.BundleMissingError):
                late = waits.error
            raise diagnose.with_events(late, await self._events()) from error

    async def undo(self) -> None:
        """Delete the pod of our name if it is ours, even when its creation got no response."""
        try:
            async with asyncio.timeout(_UNDO_S):
                pod = await self.runtime.client.find(PODS, self.runtime.namespace, self._name)
                if pod is not None and self._is_ours(pod):
                    await self._delete(pod)
        except (ClusterError, UnreachableError, TimeoutError):
            return  # The provider's end and the pod's own deadline take care of it.

    async def _create(self) -> Pod:
        creating = AsyncRetrying(retry=retry_never, stop=stop_after_attempt(_CREATE_ATTEMPTS))
        try:
            return await creating(self._create_or_adopt)
        except RetryError as error:
            raise SandboxError(
                f"the pod name {self._name} is repeatedly taken",
                why="another process creates the same sandbox at the same time",
                fix="run a job of one name from one place only",
            ) from error

    async def _create_or_adopt(self) -> Pod:
        """Create the pod, or adopt it if we already did; raises TryAgain once the name is free."""
        try:
            return await self.runtime.client.create(
                PODS, self.runtime.namespace, self._manifest, strict=True
            )
        except ApiError as error:
            if not error.already_exists:
                raise diagnose.creation_error(error, self._name) from error
        if (pod := await self._adopt_or_delete()) is not None:
            return pod
        raise TryAgain

    async def _adopt_or_delete(self) -> Pod | None:
        """Return the pod of our name if we created it; else delete it, wait, and return None."""
        pod = await self.runtime.client.find(PODS, self.runtime.namespace, self._name)
        if pod is None:
            return None
        if pod.metadata.deletion_timestamp is None:
            if self._is_ours(pod) and not self._is_ended(pod):
                return pod
            await self._delete(pod)
        await self._until_free(pod.metadata.uid)
        return None

    async def _delete(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        await self.runtime.client.delete(
            PODS, self.runtime.namespace, self._name, uid=uid, grace_s=1
        )

    async def _until_free(self, uid: str) -> None:
        """Wait until the pod is gone, or another one has its name."""
        end = time.monotonic() + _NAME_FREE_S
        while time.monotonic() < end:
            await asyncio.sleep(_NAME_POLL_S)
            pod = await self.runtime.client.find(PODS, self.runtime.namespace, self._name)
            if pod is None or pod.metadata.uid != uid:
                return
        raise SandboxError(
            f"the pod {self._name} of an earlier run does not disappear",
            why=f"it was deleted, but is still there after {_NAME_FREE_S:g} s",
            fix="its node may be gone: `kubectl delete pod --force` removes it",
        )

    def _is_ours(self, pod: Pod) -> bool:
        """Whether this run created the pod. An attached pod never counts as fresh: its session
        would begin with a key that commands there could read.
        """
        wanted = self._manifest["metadata"]["labels"][RUN_LABEL]
        is_ours: bool = pod.metadata.labels.get(RUN_LABEL) == wanted
        return is_ours and pod.metadata.uid not in self.runtime.attached

    def _is_ended(self, pod: Pod) -> bool:
        # A pod that this run has closed may still report that it runs.
        return self.runtime.reaper.is_closed(pod) or diagnose.start_problem(pod) is not None

    async def _until_ready(self) -> Pod:
        persistence = _Persistence()
        with self.runtime.watch.follow(self._pod.metadata.uid) as follower:
            # The watch may have reported the newest state before the creation's response arrived.
            self._pod = follower.pod or self._pod
            while not diagnose.is_ready(self._pod):
                problem = self._problem()
                at_most_s = await self._judge(problem, persistence.measure_s(problem))
                with suppress(TimeoutError):  # Nothing changed: the problem is judged again.
                    async with asyncio.timeout(at_most_s):
                        await follower.changed()
                if follower.gone:
                    raise diagnose.deleted_error(self._name)
                self._pod = follower.pod or self._pod
        return self._pod

    def _problem(self) -> StartProblem | None:
        volumes = self._manifest["spec"].get("volumes", ())
        has_claims = any("persistentVolumeClaim" in volume for volume in volumes)
        problem = diagnose.start_problem(self._pod)
        return problem or (diagnose.bundle_problem(self._pod) if has_claims else None)

    async def _judge(self, problem: StartProblem | None, persisted_s: float) -> float | None:
        """Raise a settled problem, warn of a lasting one; return the latest time to check again."""
        if problem is None:
            return None
        if persisted_s >= problem.settle_s:
            return await self._raise_unless_scaling(problem.error)
        if persisted_s < problem.warn_s:
            return min(problem.warn_s, problem.settle_s) - persisted_s
        if isinstance(problem.error, diagnose.BundleMissingError):
            diagnose.with_events(problem.error, await self._events())
        self._on_start_warning(problem.error)
        return problem.settle_s - persisted_s

    async def _raise_unless_scaling(self, error: SandboxError) -> float:
        """Raise `error`, or return how long to keep waiting while a node is being added."""
        events = await self._events()
        is_scaling_up = any(event.reason in {"TriggeredScaleUp", "Nominated"} for event in events)
        waits = isinstance(error, diagnose.UnschedulableError)
        if waits and is_scaling_up and self._pod.status.phase == "Pending":
            return _SCALING_S
        raise diagnose.with_events(error, events)

    async def _events(self) -> Sequence[KubernetesEvent]:
        runtime = self.runtime
        try:
            return await runtime.client.pod_events(runtime.namespace, self._pod.metadata.uid)
        except (ClusterError, UnreachableError):
            return ()  # Events only add detail to a reason that is already known.


class _Persistence:
    """Measures how long a problem of the same kind has persisted."""

    def __init__(self) -> None:
        self._kind: type[SandboxError] | None = None
        self._since = 0.0

    def measure_s(self, problem: StartProblem | None) -> float:
        """Return the seconds since a problem of this kind was first seen; 0 for a new one."""
        kind = None if problem is None else type(problem.error)
        if kind is not self._kind:
            self._kind = kind
            self._since = time.monotonic()
        return time.monotonic() - self._since


async def start_pod(
    launch: PodLaunch,
    *,
    start_s: float,
    workdir: str,
    ready: Callable[[RunningPod], Awaitable[None]],
) -> RunningPod:
    """Start the pod and open its session; leave nothing behind if `ready` is not reached."""
    runtime = launch.runtime
    async with AsyncExitStack() as cleanup:
        cleanup.push_async_callback(launch.undo)
        pod = await launch.run(start_s=start_s)
        session = await open_session(pod, runtime, workdir=workdir)
        running = RunningPod(pod, session, runtime, request_name=launch.request_name)
        cleanup.push_async_callback(running.close)
        await ready(running)
        cleanup.pop_all()
    return running
