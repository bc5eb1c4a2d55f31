"""Write requests and other frames to the current stream of a session, one writer at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from contextlib import suppress

from swe_rollout.errors import SandboxError, boundary
from swe_rollout.sandbox.session.channel import StreamLostError
from swe_rollout.sandbox.session.connection import CurrentConnection, SupervisorConnection
from swe_rollout.sandbox.session.frames import BYE, CHUNK_BYTES
from swe_rollout.sandbox.session.pending import PendingRequest
from swe_rollout.sandbox.session.seal import Frame

_GOODBYE_S = 1.0


class BackgroundTasks:
    """Runs coroutines that no caller awaits, and keeps them from being garbage-collected."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[None, None, None]) -> None:
        """Run `work` in its own task."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Cancel the tasks that still run and wait until all have ended."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class RequestSender:
    """Sends frames in order; suspects or loses a stream that can't be written to.

    Run `send` and `send_frame` in their own tasks: a cancellation in the middle of a frame would
    break the stream.
    """

    def __init__(self, current: CurrentConnection) -> None:
        self._current = current
        self.lock = asyncio.Lock()
        """Held while frames that belong together are written."""

    async def send(self, pending: PendingRequest) -> None:
        """Send a request unless its caller gives up."""
        async with self.lock:
            connection, pending.sent = self._current.connection, True
            waiting: list[Frame] = []
            for frame in pending.request.frames(pending.number):
                if pending.result.done():
                    return
                waiting.append(frame)
                if sum(len(each.body) for each in waiting) >= CHUNK_BYTES:
                    if not await self.write(connection, waiting):
                        return
                    waiting = []
            await self.write(connection, waiting)

    async def send_frame(self, frame: Frame) -> None:
        """Send a frame that has no response."""
        async with self.lock:
            await self.write(self._current.connection, [frame])

    async def write(self, connection: SupervisorConnection, frames: Iterable[Frame]) -> bool:
        """Write frames at once and return whether that succeeded; the caller holds `lock`.

        On failure the stream is suspected, so that reading ends, or the sandbox is lost.
        """
        data = b"".join(map(connection.seal.seal, frames))
        try:
            async with boundary(SandboxError, "sending to the sandbox"):
                await connection.channel.send(data)
        except StreamLostError as error:
            self._current.suspect(error.why, connection)
        except SandboxError as error:
            self._current.lose(error)
        else:
            return True
        return False

    async def say_goodbye(self) -> None:
        """Ask the supervisor to end, if the stream accepts that within a second."""
        with suppress(TimeoutError, SandboxError):
            async with asyncio.timeout(_GOODBYE_S), self.lock:
                connection = self._current.connection
                await connection.channel.send(connection.seal.seal(BYE))
