"""PodReaper: delete the pods of closed sandboxes, many at a time.

A closed sandbox has ended by itself and occupies nothing but its name; one request for many of them
saves the API server one request for each. A pod that did not end as expected is deleted separately.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

import structlog

from swe_rollout.cluster.api_error import ApiError
from swe_rollout.cluster.client import ClusterClient
from swe_rollout.cluster.objects import PODS, Pod
from swe_rollout.cluster.removal import delete_each
from swe_rollout.cluster.watch import PodWatch
from swe_rollout.errors import ClusterError, UnreachableError
from swe_rollout.text.logs import shared_context

log = structlog.get_logger()

POLL_S = 1.0
"""The pause between two checks of the closed pods."""
BATCH_PODS = 16
BATCH_AFTER_S = 60.0
"""How long an ended pod waits to be deleted together with others."""
IDLE_S = 3.0
"""How long it waits if no other running sandbox could end and join it."""
END_S = 10.0
"""How long a closed pod may take to end by itself."""
GRADER_S = 30.0
"""How long a vacated pod waits for its grader, who may first have to wait for the task's proof."""
_ENDED = "Succeeded"


@dataclass(frozen=True, slots=True)
class VacatedPod:
    """A pod in which an agent has ended, and whose other container waits for the grader."""

    pod: Pod
    request_name: str
    """The name of the agent's request."""
    shared_files: bytes
    """The files that its containers share, as they were before the agent began."""


@dataclass(frozen=True, slots=True)
class _ClosedPod:
    pod: Pod
    since_s: float
    vacated: VacatedPod | None

    @property
    def age_s(self) -> float:
        return time.monotonic() - self.since_s

    @property
    def is_late(self) -> bool:
        return self.age_s > (END_S if self.vacated is None else GRADER_S)


class PodReaper:
    """Deletes the closed pods of one run. Use it inside one event loop."""

    def __init__(
        self,
        client: ClusterClient,
        watch: PodWatch,
        *,
        namespace: str,
        selector: str,
        in_use: Collection[str],
    ) -> None:
        """`in_use` is a live collection of the names of sandboxes that start or run."""
        self._in_use = in_use
        self._client = client
        self._watch = watch
        self._namespace = namespace
        self._selector = selector
        self._closed: dict[str, _ClosedPod] = {}
        self._may_batch = True
        self._task = asyncio.create_task(
            self._keep_reaping(), name="pod-reaper", context=shared_context()
        )

    def add(self, pod: Pod, *, vacated: VacatedPod | None = None) -> None:
        """Schedule the deletion of a closed pod, which ends by itself unless it is `vacated`."""
        self._closed[pod.metadata.uid] = _ClosedPod(pod, time.monotonic(), vacated)

    def take(self, request_name: str) -> VacatedPod | None:
        """Return the vacated pod of an agent's request, and don't delete it, if there is one."""
        for uid, closed in self._closed.items():
            if closed.vacated is not None and closed.vacated.request_name == request_name:
                del self._closed[uid]
                return closed.vacated
        return None

    async def release_vacated(self) -> bool:
        """Delete the pods that wait for graders to free capacity; return whether there were any."""
        waiting = [pod for pod in self._closed.values() if pod.vacated is not None]
        for each in waiting:
            # The next round deletes it if this can't.
            self.add(each.pod)
        await asyncio.gather(*(self.delete(each.pod) for each in waiting))
        return bool(waiting)

    def is_closed(self, pod: Pod) -> bool:
        """Whether the pod with this uid was closed."""
        return pod.metadata.uid in self._closed

    async def delete(self, pod: Pod) -> bool:
        """Delete one pod at once and return whether it is gone or terminating. Never raises."""
        name, uid = pod.metadata.name, pod.metadata.uid
        try:
            await self._client.delete(PODS, self._namespace, name, uid=uid, grace_s=1)
        except (ClusterError, UnreachableError) as error:
            log.warning("pod_delete_failed", pod=name, why=str(error))
            return False
        return True

    async def aclose(self) -> None:
        """Delete every pod of the run, closed or not. Never raises."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        try:
            if self._closed:
                # One request for most of them; those that it leaves follow one by one.
                with suppress(ClusterError, UnreachableError):
                    await self._delete_ended()
            await delete_each(
                self._client,
                PODS.heads,
                self._namespace,
                labels=self._selector,
                chosen=lambda pod: pod.metadata,
                grace_s=1,
            )
        except (ClusterError, UnreachableError) as error:
            log.warning("run_pods_delete_failed", selector=self._selector, why=str(error))

    async def _keep_reaping(self) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            try:
                await self._reap()
            except (ClusterError, UnreachableError) as error:
                log.warning("pod_deletion_postponed", count=len(self._closed), why=str(error))

    async def _reap(self) -> None:
        ended: list[_ClosedPod] = []
        stuck: list[_ClosedPod] = []
        for uid, closed in list(self._closed.items()):
            pod = self._watch.pod(uid)
            if pod is None:
                del self._closed[uid]
            elif pod.status.phase == _ENDED:
                ended.append(closed)
            elif pod.status.phase == "Failed" or closed.is_late:
                stuck.append(closed)
        # These may still take up room, and must not wait for a batch that takes long.
        await asyncio.gather(*map(self._delete_closed, stuck))
        if self._is_batch_due(ended):
            # The batch spares failed pods: their status may still have to explain a failure.
            if await self._delete_ended():
                self._drop(ended)
            else:
                await asyncio.gather(*map(self._delete_closed, ended))

    async def _delete_closed(self, closed: _ClosedPod) -> None:
        if await self.delete(closed.pod):
            self._drop([closed])

    def _is_batch_due(self, ended: Sequence[_ClosedPod]) -> bool:
        """Whether the pods, sorted by the time they were closed, should be deleted now."""
        if not ended or len(ended) >= BATCH_PODS:
            return bool(ended)
        is_idle = not self._in_use and ended[-1].age_s >= IDLE_S
        return is_idle or ended[0].age_s >= BATCH_AFTER_S

    async def _delete_ended(self) -> bool:
        """Delete the run's ended pods in one request; False where that is forbidden."""
        if self._may_batch:
            fields = f"status.phase={_ENDED}"
            try:
                await self._client.delete_all(
                    PODS, self._namespace, labels=self._selector, fields=fields, grace_s=1
                )
            except ApiError as error:
                if not error.forbidden:
                    raise
                log.warning("batch_delete_forbidden", why=str(error))
                self._may_batch = False
        return self._may_batch

    def _drop(self, gone: list[_ClosedPod]) -> None:
        for closed in gone:
            self._closed.pop(closed.pod.metadata.uid, None)
