"""PodChannel: an exec stream that knows its pod, so that a loss is told with its cause.

While the stream is up, the pod's watch is listened to: a pod that is deleted, evicted or killed
ends the stream at once, even where the connection itself would hang.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from swe_rollout.cluster.api_error import ApiError
from swe_rollout.errors import ClusterError, SandboxError, UnreachableError
from swe_rollout.sandbox.diagnose import deleted, loss, with_events

if TYPE_CHECKING:
    from swe_rollout.cluster.client import ClusterClient
    from swe_rollout.cluster.exec import ExecStream
    from swe_rollout.cluster.objects import Pod
    from swe_rollout.cluster.watch import PodWatch

log = structlog.get_logger()

_CAUSE_S = 3.0
"""The kubelet reports what happened to a container a moment after its streams have ended."""


class PodChannel:
    """A `Channel` over the exec stream of one pod."""

    def __init__(
        self, stream: ExecStream, pod: Pod, *, client: ClusterClient, watch: PodWatch
    ) -> None:
        self._stream = stream
        self._pod = pod
        self._client = client
        self._watch = watch
        self._cause: asyncio.Task[SandboxError | None] = asyncio.create_task(
            self._until_lost(), name=f"pod-guard-{pod.metadata.name}"
        )
        self._told: SandboxError | None = None

    async def send(self, data: bytes) -> None:
        """As the stream does; a loss comes with its cause."""
        try:
            await self._stream.send(data)
        except SandboxError as error:
            raise await self._explained(error) from error

    async def receive(self) -> bytes:
        """As the stream does; a loss comes with its cause."""
        try:
            return await self._stream.receive()
        except SandboxError as error:
            raise await self._explained(error) from error

    async def close(self) -> None:
        """End the stream; what happens to the pod from now on is no loss."""
        self._cause.cancel()
        await asyncio.gather(self._cause, return_exceptions=True)
        await self._stream.close()

    async def _until_lost(self) -> SandboxError | None:
        """Wait for the watch to tell of a loss, and end the stream by it; none: it can't tell."""
        with self._watch.follow(self._pod.metadata.uid) as follower:
            while True:
                name = self._pod.metadata.name
                error = deleted(name) if follower.gone else loss(follower.pod or self._pod)
                if error is not None:
                    await self._stream.abort(error)
                    return error
                try:
                    await follower.changed()
                except ApiError as refused:
                    log.warning("pod_guard_ended", pod=name, why=str(refused))
                    return None

    async def _explained(self, error: SandboxError) -> SandboxError:
        """The cause behind `error`: the pod's fate, or `error` itself when the pod is well."""
        if self._cause.cancelled():
            return error
        if self._told is None:
            await asyncio.wait([self._cause], timeout=_CAUSE_S)
            cause = self._cause.result() if self._cause.done() else None
            self._told = await self._with_events(cause or error)
            log.warning("sandbox_lost", pod=self._pod.metadata.name, why=str(self._told))
        return self._told

    async def _with_events(self, error: SandboxError) -> SandboxError:
        metadata = self._pod.metadata
        try:
            events = await self._client.pod_events(metadata.namespace, metadata.uid)
        except (ClusterError, UnreachableError):
            return error
        return with_events(error, events)
