"""Move a session to a new stream: nothing that was sent is lost, and no command runs twice."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext, suppress
from dataclasses import dataclass

import structlog

from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.session.channel import RelayEndedError, StreamLostError, StreamOpener
from swe_rollout.sandbox.session.connection import (
    CurrentConnection,
    Handshake,
    SupervisorConnection,
    replace_connection,
)
from swe_rollout.sandbox.session.frames import RequestKind
from swe_rollout.sandbox.session.pending import PendingRequest, PendingRequests
from swe_rollout.sandbox.session.reader import Acknowledgements
from swe_rollout.sandbox.session.seal import Frame
from swe_rollout.sandbox.session.sender import BackgroundTasks, RequestSender

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Reconnect:
    """Replace the lost stream of a session and repeat what did not arrive."""

    opener: StreamOpener
    handshake: Handshake
    current: CurrentConnection
    pending: PendingRequests
    sender: RequestSender
    acknowledgements: Acknowledgements
    tasks: BackgroundTasks

    async def replace(self, error: StreamLostError) -> None:
        """Replace the stream that was lost with `error`; SandboxError when that is impossible.

        A background task then repeats what did not arrive.
        """
        before = self.current.connection
        log.warning("stream_lost", why=str(error))
        began = asyncio.get_running_loop().time()
        self.current.settled.clear()
        before.states.cancel()
        with suppress(SandboxError):
            await before.channel.close()
        # What ended in the sandbox may have been ended there: that is the episode's time.
        is_own = isinstance(error, RelayEndedError)
        with nullcontext() if is_own else self.current.clocks.stopped():
            connection = await replace_connection(self.opener, self.handshake, error)
        self.current.connection = connection
        self.current.settled.set()
        self.tasks.start(self.resume(connection))
        after_s = round(asyncio.get_running_loop().time() - began, 3)
        log.info("stream_attached", after_s=after_s)

    async def resume(self, connection: SupervisorConnection) -> None:
        """Ask the supervisor which requests it knows, and repeat the others.

        Results that nobody waits for, such as those of an earlier process, are dropped there.
        """
        async with self.sender.lock:
            connection.list_number = self.pending.next_number()
            asked = Frame(connection.list_number, RequestKind.LIST)
            if not await self.sender.write(connection, [asked]):
                return
            try:
                states = await connection.states
            except asyncio.CancelledError:
                return
            for pending in self.pending.all():
                if pending.sent and not await self._repeat(
                    connection, pending, has_ended=states.get(pending.number)
                ):
                    return
            for number, has_ended in states.items():
                if has_ended and self.pending.get(number) is None:
                    self.acknowledgements.add(number, 0)

    async def _repeat(
        self, connection: SupervisorConnection, pending: PendingRequest, *, has_ended: bool | None
    ) -> bool:
        """Send what a request needs; False when the stream did not take it.

        `has_ended` is None where the supervisor does not know the request.
        """
        match has_ended:
            case False:
                return True
            case True:
                frame = Frame(pending.number, RequestKind.AGAIN)
                return await self.sender.write(connection, [frame])
            case None if pending.result.done():
                # Its caller gave up before it began.
                self.pending.remove(pending.number)
                return True
            case None:
                for frame in pending.request.frames(pending.number, connection.greeting):
                    if not await self.sender.write(connection, [frame]):
                        return False
                return True
