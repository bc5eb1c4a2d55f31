"""PodStreamOpener: open channels to the supervisor of one pod, and explain why they are lost.

While open, it follows the pod's watch: a pod that is deleted, evicted or killed ends the stream at
once, even where the connection itself would hang. If a stream is lost while the pod is healthy,
only that is reported: another stream can reach the supervisor again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack

import structlog

from swe_rollout.cluster.api_error import ApiError
from swe_rollout.cluster.client import ClusterClient
from swe_rollout.cluster.exec import (
    ExecEndedError,
    ExecLostError,
    ExecStream,
    ExecTarget,
    open_exec,
)
from swe_rollout.cluster.objects import Pod
from swe_rollout.cluster.watch import PodWatch
from swe_rollout.errors import (
    ClusterError,
    PrerequisiteError,
    SandboxError,
    SweRolloutError,
    UnreachableError,
)
from swe_rollout.sandbox.pods.diagnose import deleted_error, loss_error, with_events
from swe_rollout.sandbox.pods.pod_spec import CONTAINER
from swe_rollout.sandbox.session import bootstrap
from swe_rollout.sandbox.session.channel import (
    RelayEndedError,
    StreamLostError,
    SupervisorGoneError,
)

log = structlog.get_logger()

_CAUSE_S = 3.0
"""The kubelet reports what happened to a container a moment after its streams have ended."""
_SIGNAL_BASE = 128
_NOT_OPENED = "can't run a command in pod {}"


class PodStreamOpener:
    """A `StreamOpener` to this very pod, not to a later one of the same name."""

    def __init__(
        self, pod: Pod, *, client: ClusterClient, watch: PodWatch, container: str = CONTAINER
    ) -> None:
        self._pod = pod
        self._container = container
        self._client = client
        self._watch = watch
        self._stream: ExecStream | None = None
        self._is_first = True
        self._pod_loss: asyncio.Task[SandboxError | None] = asyncio.create_task(
            self._until_pod_lost(), name=f"pod-loss-{pod.metadata.name}"
        )
        self._aborting = asyncio.create_task(self._abort_on_pod_loss())
        self._explanation: SandboxError | None = None

    async def open(self, *, first: bool = False) -> PodChannel:
        """Open a channel to the pod's supervisor; the `first` one brings it into the pod."""
        self._is_first = first
        try:
            self._stream = await self._open_stream(bootstrap.attach_command(first=first))
        except ClusterError as error:
            raise await self._open_error(error) from error
        return PodChannel(self._stream, self)

    async def close(self) -> None:
        """Stop following the pod: its end no longer counts as a loss."""
        self._pod_loss.cancel()
        self._aborting.cancel()
        await asyncio.gather(self._pod_loss, self._aborting, return_exceptions=True)

    async def explain(self, error: SandboxError) -> SandboxError:
        """Return the cause of `error`: the loss of the pod, or `error` if the pod is healthy."""
        if self._pod_loss.cancelled():
            return error
        if self._explanation is None:
            cause = await self._await_known_loss()
            self._explanation = await self._with_events(cause or error)
            log.warning("sandbox_lost", pod=self._pod.metadata.name, why=str(self._explanation))
        return self._explanation

    async def classify(self, error: SandboxError) -> SandboxError:
        """Classify a stream's end: the loss of the stream, the supervisor or the pod."""
        if self._pod_loss.cancelled():
            return error
        lost = _stream_loss(error, is_first=self._is_first)
        if isinstance(lost, SupervisorGoneError):
            # The pod itself may be ending, which the watch reports a moment later.
            await self._await_known_loss()
        if self._known_loss() is None and lost is not None:
            return lost
        return await self.explain(error)

    async def _open_stream(self, command: Sequence[str]) -> ExecStream:
        """Open a stream, unless the pod's loss is known first: exec in an ending pod may hang."""
        metadata = self._pod.metadata
        target = ExecTarget(metadata.namespace, metadata.name, self._container)
        opening = asyncio.create_task(open_exec(self._client, target, command))
        async with AsyncExitStack() as stack:
            stack.push_async_callback(_abandon, opening)
            await asyncio.wait([opening, self._pod_loss], return_when=asyncio.FIRST_COMPLETED)
            if (loss := self._known_loss()) is not None:
                raise await self.explain(loss)
            opened = await opening
            stack.pop_all()
        return opened

    async def _open_error(self, error: ClusterError) -> SweRolloutError:
        """Build the error for a stream that could not be opened, because of the pod or the network.

        If the first one is forbidden, this concerns the whole job: no other would open either.
        """
        cause = await self._await_known_loss()
        name = self._pod.metadata.name
        if cause is not None:
            return await self.explain(cause)
        if isinstance(error, ApiError) and error.lacks_right and self._is_first:
            return PrerequisiteError(_NOT_OPENED.format(name), why=error.why, fix=error.fix)
        if isinstance(error, ApiError) and error.forbidden:
            return SandboxError(_NOT_OPENED.format(name), why=error.why, fix=error.fix)
        return StreamLostError(_NOT_OPENED.format(name), why=error.why, fix=error.fix)

    def _known_loss(self) -> SandboxError | None:
        """Return the loss of the pod, if the watch has reported one."""
        known = self._pod_loss.done() and not self._pod_loss.cancelled()
        return self._pod_loss.result() if known else None

    async def _await_known_loss(self) -> SandboxError | None:
        """Give the watch a moment to report a loss, and return it."""
        await asyncio.wait([self._pod_loss], timeout=_CAUSE_S)
        return self._known_loss()

    async def _until_pod_lost(self) -> SandboxError | None:
        """Wait until the watch reports a loss; None when the watch can't continue."""
        with self._watch.follow(self._pod.metadata.uid) as follower:
            while True:
                name = self._pod.metadata.name
                if follower.gone:
                    return deleted_error(name)
                error = loss_error(follower.pod or self._pod, self._container)
                if error is not None:
                    return error
                try:
                    await follower.changed()
                except ApiError as refused:
                    log.warning("pod_watch_lost", pod=name, why=str(refused))
                    return None

    async def _abort_on_pod_loss(self) -> None:
        """Abort the current stream when the pod is lost; later ones are refused."""
        error = await self._pod_loss
        if error is not None and self._stream is not None:
            await self._stream.abort(error)

    async def _with_events(self, error: SandboxError) -> SandboxError:
        metadata = self._pod.metadata
        try:
            events = await self._client.pod_events(metadata.namespace, metadata.uid)
        except (ClusterError, UnreachableError):
            return error
        return with_events(error, events)


class PodChannel:
    """A `Channel` over an exec stream of one pod; errors carry the cause of a loss."""

    def __init__(self, stream: ExecStream, opener: PodStreamOpener) -> None:
        self._stream = stream
        self._opener = opener

    async def send(self, data: bytes) -> None:
        try:
            await self._stream.send(data)
        except SandboxError as error:
            raise await self._opener.classify(error) from error

    async def receive(self) -> bytes:
        try:
            data = await self._stream.receive()
        except SandboxError as error:
            raise await self._opener.classify(error) from error
        if not data:
            # When a container runtime dies, the node reports success for the streams it held.
            # The next stream finds out whether the supervisor has really ended.
            end = ExecLostError(
                "the stream to the sandbox ended",
                why="the node reports that the supervisor exited, which is no proof that it did",
            )
            raise await self._opener.classify(end)
        return data

    async def close(self) -> None:
        await self._stream.close()


async def _abandon(opening: asyncio.Task[ExecStream]) -> None:
    """Cancel the opening of a stream, and close the stream if it has just opened."""
    opening.cancel()
    for opened in await asyncio.gather(opening, return_exceptions=True):
        if isinstance(opened, ExecStream):
            await opened.close()


def _stream_loss(error: SandboxError, *, is_first: bool) -> SandboxError | None:
    """Convert the end of a stream in a healthy pod; None when more than the stream is lost."""
    kind: type[StreamLostError | SupervisorGoneError]
    match error:
        case ExecLostError():
            kind = StreamLostError
        case ExecEndedError(program_exit_code=bootstrap.GONE):
            kind = SupervisorGoneError
        case ExecEndedError(program_exit_code=code):
            # A command has killed the relay, or replaced the image's shell: the supervisor goes on.
            if is_first and code <= _SIGNAL_BASE and code != bootstrap.BROKEN:
                return None
            kind = RelayEndedError
        case _:
            return None
    return kind(error.what, why=error.why, fix=error.fix)
