"""PodLaunch: one pod from its manifest to a running container, or a typed reason why not.

The name of a pod is fixed by its request, so a repeated creation meets what the first one made;
what a run that is no more left under that name is removed first.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from swe_rollout.cluster.api_error import ApiError
from swe_rollout.errors import ClusterError, SandboxError, UnreachableError
from swe_rollout.sandbox.pods import diagnose
from swe_rollout.sandbox.pods.pod_spec import RUN_LABEL

if TYPE_CHECKING:
    from collections.abc import Callable

    from swe_rollout.cluster.client import ClusterClient
    from swe_rollout.cluster.manifests import PodManifest, TemplatedPod
    from swe_rollout.cluster.objects import Event, Pod
    from swe_rollout.cluster.watch import Follower, PodWatch
    from swe_rollout.sandbox.pods.diagnose import Finding

_NAME_FREE_S = 60.0
"""How long a pod of the same name may take to go."""
_NAME_POLL_S = 0.3
_NAME_TRIES = 3
_UNDO_S = 10.0
_SCALING_S = 30.0
"""Between two looks at whether a node is still on its way."""


class PodLaunch:
    """Brings up one pod. `undo` removes whatever came of it."""

    def __init__(
        self,
        client: ClusterClient,
        watch: PodWatch,
        manifest: PodManifest | TemplatedPod,
        *,
        namespace: str,
        is_over: Callable[[Pod], bool],
        on_doubt: Callable[[SandboxError], None],
    ) -> None:
        """`is_over` knows the pods of this run that were closed, whatever their status says.

        `on_doubt` is told of a reason not to start that may still pass.
        """
        self._client = client
        self._watch = watch
        self._manifest = manifest
        self._namespace = namespace
        self._is_over = is_over
        self._on_doubt = on_doubt
        self._name = manifest.metadata.name
        self._seen: Pod

    async def run(self, *, start_s: float) -> Pod:
        """The pod, its container ready, within `start_s` of its creation."""
        self._seen = await self._create()
        try:
            async with asyncio.timeout(start_s):
                return await self._until_ready(self._seen)
        except TimeoutError as error:
            late = diagnose.too_slow(self._seen, start_s)
            raise diagnose.with_events(late, await self._events(self._seen)) from error

    async def undo(self) -> None:
        """Delete the pod of our name, if it is ours: also one whose creation was not answered."""
        try:
            async with asyncio.timeout(_UNDO_S):
                pod = await self._client.get_pod(self._namespace, self._name)
                if self._is_ours(pod):
                    uid = pod.metadata.uid
                    await self._client.delete_pod(self._namespace, self._name, uid=uid)
        except (ClusterError, UnreachableError, TimeoutError):
            return  # gone already, or left to the provider's end and the pod's own deadline

    async def _create(self) -> Pod:
        for _ in range(_NAME_TRIES):
            try:
                return await self._client.create_pod(self._namespace, self._manifest)
            except ApiError as error:
                if not error.already_exists:
                    raise diagnose.refusal(error, self._name) from error
            if (pod := await self._take_over()) is not None:
                return pod
        raise SandboxError(
            f"the name {self._name} is taken again and again",
            why="another process creates the same sandbox at the same time",
            fix="run a job of one name from one place only",
        )

    async def _take_over(self) -> Pod | None:
        """The pod of our name if our own creation made it; else remove it and wait: none."""
        try:
            pod = await self._client.get_pod(self._namespace, self._name)
            if pod.metadata.deletion_timestamp is None:
                if self._is_ours(pod) and not self._is_spent(pod):
                    return pod
                await self._client.delete_pod(self._namespace, self._name, uid=pod.metadata.uid)
            await self._until_free(pod.metadata.uid)
        except ApiError as error:
            if not (error.not_found or error.conflict):
                raise
        return None

    async def _until_free(self, uid: str) -> None:
        """Wait for the pod to go; raises ApiError `not_found` when it has."""
        end = time.monotonic() + _NAME_FREE_S
        while time.monotonic() < end:
            await asyncio.sleep(_NAME_POLL_S)
            pod = await self._client.get_pod(self._namespace, self._name)
            if pod.metadata.uid != uid:
                return
        raise SandboxError(
            f"the pod {self._name} of an earlier run does not go away",
            why=f"it was deleted, and is still there after {_NAME_FREE_S:g} s",
            fix="its node may be gone: `kubectl delete pod --force` removes it",
        )

    def _is_ours(self, pod: Pod) -> bool:
        return pod.metadata.labels.get(RUN_LABEL) == self._manifest.metadata.labels[RUN_LABEL]

    def _is_spent(self, pod: Pod) -> bool:
        return self._is_over(pod) or diagnose.start_finding(pod) is not None

    async def _until_ready(self, pod: Pod) -> Pod:
        standing = _Standing()
        with self._watch.follow(pod.metadata.uid) as follower:
            # The watch may have been told before the creation was answered, and only once.
            self._seen = pod = follower.pod or pod
            while not diagnose.is_ready(pod):
                finding = diagnose.start_finding(pod)
                stood_s = standing.stood_s(finding)
                await _news(follower, await self._weigh(finding, pod, stood_s=stood_s))
                if follower.gone:
                    raise diagnose.deleted(self._name)
                self._seen = pod = follower.pod or pod
        return pod

    async def _weigh(self, finding: Finding | None, pod: Pod, *, stood_s: float) -> float | None:
        """Seconds after which to look again without news; raises what is to be believed."""
        if finding is None:
            return None
        if stood_s >= finding.settle_s:
            return await self._settle(finding.error, pod)
        if stood_s < finding.doubt_s:
            return min(finding.doubt_s, finding.settle_s) - stood_s
        self._on_doubt(finding.error)
        return finding.settle_s - stood_s

    async def _settle(self, error: SandboxError, pod: Pod) -> float:
        """Raise `error`; or seconds to go on, when a node is on its way to a pod none takes."""
        events = await self._events(pod)
        if isinstance(error, diagnose.UnschedulableError) and diagnose.scaling_up(events):
            return _SCALING_S
        raise diagnose.with_events(error, events)

    async def _events(self, pod: Pod) -> list[Event]:
        try:
            return await self._client.pod_events(self._namespace, pod.metadata.uid)
        except (ClusterError, UnreachableError):
            return []  # they only complete a reason that is known without them


class _Standing:
    """Since when the same kind of reason has stood."""

    def __init__(self) -> None:
        self._kind: type[SandboxError] | None = None
        self._since = 0.0

    def stood_s(self, finding: Finding | None) -> float:
        """Seconds since a finding of this kind was first made; 0 for a new one."""
        kind = None if finding is None else type(finding.error)
        if kind is not self._kind:
            self._kind = kind
            self._since = time.monotonic()
        return time.monotonic() - self._since


async def _news(follower: Follower, at_most_s: float | None) -> None:
    try:
        async with asyncio.timeout(at_most_s):
            await follower.changed()
    except TimeoutError:
        return  # no news is what was waited for
