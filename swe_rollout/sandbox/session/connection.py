"""The stream of a session to its supervisor: how it is opened, watched and replaced.

Every stream begins with a handshake. The first brings the supervisor into the sandbox, if
necessary, and the key of the session; later ones prove that they know the key, as does every stream
of a process that continues another's session.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Final

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_exponential

from swe_rollout.errors import SandboxDestroyedError, SandboxError, boundary
from swe_rollout.sandbox.session import bootstrap
from swe_rollout.sandbox.session.channel import (
    Channel,
    RelayEndedError,
    StreamLostError,
    StreamOpener,
)
from swe_rollout.sandbox.session.frames import FrameReader, RequestKind, parse_states
from swe_rollout.sandbox.session.keys import SessionLife
from swe_rollout.sandbox.session.pending import PendingRequests
from swe_rollout.sandbox.session.seal import KEY_BYTES, Frame, FrameSeal
from swe_rollout.types.deadline import Deadline

REATTACH_S = 60.0
"""How long a lost stream is retried; less than the supervisor waits for its session."""
_GREETING_S = 10.0
_FIRST_PAUSE_S = 0.05
_MAX_PAUSE_S = 5.0
_LEAST_ENDED = 3
"""How many streams in a row must be ended from inside before the sandbox is blamed."""
MOST_S: Final = 600.0
"""Total time for which one sandbox may stop clocks: commands can disturb streams, and must not
gain unlimited time."""


@dataclass(slots=True)
class SupervisorConnection:
    """A stream to a supervisor, from its greeting to its loss."""

    channel: Channel
    reader: FrameReader
    seal: FrameSeal
    shell: str
    """Program that runs scripts."""
    states: asyncio.Future[dict[int, bool]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    """Known requests, and whether each has ended; set by the supervisor's reply to `LIST`."""
    list_number: int = -1
    """Number of the `LIST` request sent over this stream; -1 if none was sent."""

    def receive_states(self, body: bytes) -> None:
        """Take the reply to `LIST`; only the first one counts."""
        if not self.states.done():
            self.states.set_result(parse_states(body))


class CurrentConnection:
    """The current stream, whether it is trusted, and whether the sandbox is lost."""

    def __init__(self, connection: SupervisorConnection, pending: PendingRequests) -> None:
        self.connection = connection
        self.lost: SandboxError | None = None
        """Why there can be no further stream; None while there can be one."""
        self.settled = asyncio.Event()
        """Set while there is a stream, and once there can be no further one."""
        self.settled.set()
        self.clocks = OutageClocks()
        """The episode clocks of the callers that wait for a result."""
        self._pending = pending
        self._reading: asyncio.Task[SandboxError] | None = None
        self._suspicion: StreamLostError | None = None

    async def read_until_lost(self, read: Coroutine[None, None, SandboxError]) -> SandboxError:
        """Run `read` on the current stream until it ends or is suspected; return why."""
        self._reading = asyncio.create_task(read)
        try:
            return await self._reading
        except asyncio.CancelledError:
            self._reading.cancel()
            if self._suspicion is None:
                raise
            return self._suspicion
        finally:
            self._reading = self._suspicion = None

    def suspect(self, why: str, connection: SupervisorConnection | None = None) -> None:
        """Give up a stream that still looks open; ignore a `connection` that is no longer used."""
        if self._reading is not None and connection in (None, self.connection):
            self._suspicion = StreamLostError("the stream to the sandbox is silent", why=why)
            self.settled.clear()
            self._reading.cancel()

    def lose(self, error: SandboxError) -> None:
        """Fail every pending request, and all later ones with the first error given."""
        if self.lost is None:
            self.lost = error
        self.settled.set()
        self._pending.fail_all(self.lost)


class Handshake:
    """Starts the streams of one session, or of one life of a session."""

    def __init__(self, life: SessionLife | None = None) -> None:
        self._life = life or SessionLife()
        self._key = self._life.key or secrets.token_bytes(KEY_BYTES)
        self._streams = self._life.first + self._life.tried

    async def connect(self, channel: Channel, *, timeout_s: float) -> SupervisorConnection:
        """Bring the supervisor, if wanted, and start a stream. Closes the channel on failure.

        Raises StreamLostError if another stream may succeed, SandboxError if none can.
        """
        async with AsyncExitStack() as stack:
            stack.push_async_callback(channel.close)
            try:
                async with asyncio.timeout(timeout_s), boundary(SandboxError, "starting a stream"):
                    connection = await self._begin(channel)
            except TimeoutError:
                kind = SandboxError if self._brings_key else StreamLostError
                raise kind(
                    "the sandbox does not answer",
                    why=f"its supervisor did not greet a new stream within {timeout_s:g} s",
                    fix="check that the image has /bin/sh and the machine is not overloaded",
                ) from None
            stack.pop_all()
        return connection

    async def _begin(self, channel: Channel) -> SupervisorConnection:
        self._streams += 1
        reader = FrameReader(channel)
        while (machine := await reader.start()) is not None:
            program = bootstrap.program(machine)
            await channel.send(b"%d\n" % len(program) + program)
        seal = FrameSeal(self._key, self._streams)
        # The first stream starts before anything untrusted runs in the sandbox.
        key = self._key if self._brings_key else b""
        await channel.send(seal.seal(Frame(self._streams, RequestKind.HELLO, key)))
        return SupervisorConnection(channel, reader, seal, await reader.greeting(seal))

    @property
    def _brings_key(self) -> bool:
        return self._streams == 1


async def replace_connection(
    opener: StreamOpener, handshake: Handshake, why: StreamLostError
) -> SupervisorConnection:
    """Open a new stream after one was lost for `why`, retrying for `REATTACH_S`.

    Raises SandboxError if no stream is possible, SandboxDestroyedError if each one was ended from
    inside the sandbox while the sandbox itself goes on.
    """
    losses: list[StreamLostError] = [why]

    async def attempt() -> SupervisorConnection:
        try:
            async with boundary(StreamLostError, "opening a stream"):
                return await handshake.connect(await opener.open(), timeout_s=_GREETING_S)
        except StreamLostError as error:
            losses.append(error)
            raise

    retrying = AsyncRetrying(
        retry=retry_if_exception_type(StreamLostError),
        stop=stop_after_delay(REATTACH_S),
        wait=wait_exponential(multiplier=_FIRST_PAUSE_S, max=_MAX_PAUSE_S),
        reraise=True,
    )
    try:
        return await retrying(attempt)
    except StreamLostError as error:
        ended = [loss for loss in losses if isinstance(loss, RelayEndedError)]
        if len(ended) == len(losses) >= _LEAST_ENDED:
            raise SandboxDestroyedError(
                "something in the sandbox ends every stream to it",
                why=f"{len(ended)} streams ended there within {REATTACH_S:g} s, while the sandbox "
                f"went on; the last one: {error.why}",
            ) from error
        raise error from why


class OutageClocks:
    """The clocks of the callers that wait for a sandbox."""

    def __init__(self) -> None:
        self._waiting: dict[ExitStack, Deadline] = {}
        self._since: float | None = None
        self._left_s = MOST_S

    @contextmanager
    def waiting(self, clock: Deadline | None) -> Iterator[None]:
        """Inside the block, stop a clock whenever there is no stream."""
        if clock is None:
            yield
            return
        with ExitStack() as stopped:
            self._waiting[stopped] = clock
            if self._since is not None:
                stopped.enter_context(clock.paused())
            try:
                yield
            finally:
                del self._waiting[stopped]

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop all clocks inside the block, since there is no stream."""
        if self._left_s <= 0:
            yield
            return
        self._since = time.monotonic()
        for stopped, clock in self._waiting.items():
            stopped.enter_context(clock.paused())
        try:
            yield
        finally:
            self._left_s -= time.monotonic() - self._since
            self._since = None
            for stopped in self._waiting:
                stopped.close()
