"""The supervisor client: requests and their results, over a stream that may break and reconnect.

Every request has a number, by which it is repeated after its stream was lost: the supervisor lists
the requests it knows, sends missing results again, and gets only those requests again that it never
began. `reader` reads responses, `sender` writes requests.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, nullcontext, suppress
from typing import Self

import structlog

from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.base import ExecResult
from swe_rollout.sandbox.session.channel import (
    Channel,
    RelayEndedError,
    StreamLostError,
    StreamOpener,
)
from swe_rollout.sandbox.session.connection import (
    CurrentConnection,
    Handshake,
    SupervisorConnection,
    replace_connection,
)
from swe_rollout.sandbox.session.frames import (
    Request,
    RequestKind,
    acknowledge_frame,
)
from swe_rollout.sandbox.session.keys import SessionLife
from swe_rollout.sandbox.session.pending import (
    PendingRequest,
    PendingRequests,
    copy_of,
    unresponsive_error,
)
from swe_rollout.sandbox.session.reader import Acknowledgements, read_results
from swe_rollout.sandbox.session.seal import Frame
from swe_rollout.sandbox.session.sender import BackgroundTasks, RequestSender
from swe_rollout.types.deadline import CLOCK

_GRACE_S = 30.0
_PING_S = 10.0
_KILLED = 137
log = structlog.get_logger()


class SupervisorClient:
    """Sends requests to a supervisor and returns their results, many at a time."""

    def __init__(
        self,
        connection: SupervisorConnection,
        handshake: Handshake,
        opener: StreamOpener | None,
        *,
        last_number: int,
    ) -> None:
        """Use `SupervisorClient.open`."""
        self._opener = opener
        self._handshake = handshake
        self._tasks = BackgroundTasks()
        self._pending = PendingRequests(last_number)
        self._current = CurrentConnection(connection, self._pending)
        self._acknowledgements = Acknowledgements(self._acknowledge)
        self._sender = RequestSender(self._current)

    @classmethod
    async def open(
        cls,
        channel: Channel,
        *,
        opener: StreamOpener | None,
        timeout_s: float,
        life: SessionLife,
    ) -> Self:
        """Connect to a supervisor over a channel that runs one of the commands of `bootstrap`.

        Closes the channel and the opener on failure.
        """
        handshake = Handshake(life)
        async with AsyncExitStack() as stack:
            if opener is not None:
                stack.push_async_callback(opener.close)
            connection = await handshake.connect(channel, timeout_s=timeout_s)
            stack.pop_all()
        client = cls(connection, handshake, opener, last_number=life.first)
        client._tasks.start(client._serve())
        if life.number and opener is not None:
            client._tasks.start(client._resume(connection))
        return client

    @property
    def shell(self) -> str:
        """The program that runs scripts in this sandbox."""
        return self._current.connection.shell

    async def request(self, request: Request, *, timeout_s: float) -> ExecResult:
        """Send a request and return its result; after `timeout_s` the supervisor counts as hung.

        Cancelling ends the command. Raises SandboxError when the sandbox is lost.
        """
        if self._current.lost is not None:
            raise copy_of(self._current.lost)
        pending = PendingRequest(self._pending.next_number(), request)
        self._pending[pending.number] = pending
        self._tasks.start(self._sender.send(pending))
        try:
            with self._current.clocks.waiting(CLOCK.get()):
                return await self._result(pending, timeout_s)
        except asyncio.CancelledError:
            if self._current.lost is None:
                cancel = Frame(pending.number, RequestKind.CANCEL)
                self._tasks.start(self._sender.send_frame(cancel))
            raise
        finally:
            # Also stops the sender. The request stays pending until its response has arrived.
            pending.result.cancel()

    async def request_within(self, request: Request, *, timeout_s: float) -> ExecResult:
        """Send a request whose process commands of the sandbox may stop, and return its result.

        A process that has not finished after `timeout_s`, while the supervisor responds, is ended,
        and the result says so. Raises SandboxError when the sandbox is lost.
        """
        try:
            async with asyncio.timeout(timeout_s) as clock:
                return await self.request(request, timeout_s=timeout_s + _GRACE_S)
        except TimeoutError:
            if not clock.expired():
                raise
        await self.request(Request(RequestKind.PING), timeout_s=_PING_S)
        return ExecResult(_KILLED, b"", b"", timed_out=True)

    async def close(self) -> None:
        """End the supervisor and all that runs. Idempotent; never raises."""
        was_open = self._current.lost is None
        self._current.lose(SandboxError("the sandbox is closed", fix="use it before close()"))
        async with AsyncExitStack() as stack:
            # Each of them, whichever is cancelled: a stream left open would hold its connection.
            if self._opener is not None:
                stack.push_async_callback(self._opener.close)
            stack.push_async_callback(self._close_channel)
            stack.push_async_callback(self._tasks.stop)
            stack.callback(self._acknowledgements.stop)
            if was_open:
                await self._sender.say_goodbye()

    async def _close_channel(self) -> None:
        with suppress(SandboxError):
            await self._current.connection.channel.close()

    async def _result(self, pending: PendingRequest, timeout_s: float) -> ExecResult:
        """Wait for a result; replace a silent stream once, if there is an opener."""
        for may_replace in (self._opener is not None, False):
            try:
                async with asyncio.timeout(timeout_s):
                    return await asyncio.shield(pending.result)
            except TimeoutError:
                if not may_replace:
                    break
                self._current.suspect(f"no response within {timeout_s:.0f} s")
                await self._current.settled.wait()
        self._current.lose(unresponsive_error(timeout_s))
        raise unresponsive_error(timeout_s)

    def _acknowledge(self, numbers: list[int]) -> None:
        if self._current.lost is None:
            self._tasks.start(self._sender.send_frame(acknowledge_frame(numbers)))

    async def _serve(self) -> None:
        """Read responses as long as the sandbox lives, from one stream after another."""
        try:
            while True:
                connection = self._current.connection
                error = await self._current.read_until_lost(
                    read_results(connection, self._pending, self._acknowledgements)
                )
                if self._current.lost is not None:
                    return
                if self._opener is None or not isinstance(error, StreamLostError):
                    raise error
                await self._replace(connection, self._opener, error)
        except SandboxError as error:
            self._current.lose(error)

    async def _replace(
        self, before: SupervisorConnection, opener: StreamOpener, error: StreamLostError
    ) -> None:
        """Replace the stream that was lost with `error`; SandboxError when that is impossible.

        A background task then repeats the requests that did not arrive.
        """
        log.warning("stream_lost", why=str(error))
        began = asyncio.get_running_loop().time()
        self._current.settled.clear()
        before.states.cancel()
        with suppress(SandboxError):
            await before.channel.close()
        # If something in the sandbox ended the stream, the time is charged to the episode.
        is_own = isinstance(error, RelayEndedError)
        with nullcontext() if is_own else self._current.clocks.stopped():
            connection = await replace_connection(opener, self._handshake, error)
        self._current.connection = connection
        self._current.settled.set()
        self._tasks.start(self._resume(connection))
        after_s = round(asyncio.get_running_loop().time() - began, 3)
        log.info("stream_attached", after_s=after_s)

    async def _resume(self, connection: SupervisorConnection) -> None:
        """Ask the supervisor which requests it knows, and repeat the others.

        Results that nobody waits for, such as those of an earlier process, are dropped there.
        """
        async with self._sender.lock:
            connection.list_number = self._pending.next_number()
            asked = Frame(connection.list_number, RequestKind.LIST)
            if not await self._sender.write(connection, [asked]):
                return
            try:
                states = await connection.states
            except asyncio.CancelledError:
                return
            for pending in tuple(self._pending.values()):
                if pending.sent and not await self._repeat(
                    connection, pending, has_ended=states.get(pending.number)
                ):
                    return
            for number, has_ended in states.items():
                if has_ended and number not in self._pending:
                    self._acknowledgements.add(number, 0)

    async def _repeat(
        self, connection: SupervisorConnection, pending: PendingRequest, *, has_ended: bool | None
    ) -> bool:
        """Send what a request needs; return False if the stream did not accept it."""
        match has_ended:
            case False:
                return True
            case True:
                frame = Frame(pending.number, RequestKind.AGAIN)
                return await self._sender.write(connection, [frame])
            case None if pending.result.done():
                # Its caller gave up before it began.
                self._pending.pop(pending.number, None)
                return True
            case None:
                for frame in pending.request.frames(pending.number):
                    if not await self._sender.write(connection, [frame]):
                        return False
                return True
