"""Link: requests to a supervisor and their results, over a stream that may break and come back.

Every request has a number. What is lost with a stream is asked for again by it: the supervisor
lists what it knows, gives results that did not arrive once more, and is sent again only what it
never began. Only `session` uses this.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import structlog

from swe_rollout.errors import SandboxError, boundary
from swe_rollout.sandbox import bootstrap
from swe_rollout.sandbox.channel import StreamLostError
from swe_rollout.sandbox.frames import (
    BYE,
    CHUNK_BYTES,
    FrameReader,
    Header,
    Result,
    acknowledge_frame,
    again_frame,
    broken_protocol,
    cancel_frame,
    list_frame,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable

    from swe_rollout.sandbox.bootstrap import Runtime
    from swe_rollout.sandbox.channel import Channel, Dial
    from swe_rollout.sandbox.frames import Greeting, Request

log = structlog.get_logger()

REATTACH_S = 60.0
"""How long a lost stream is tried again; less than the supervisor waits for it."""
_GREETING_S = 10.0
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 5.0
_ACKNOWLEDGED_AT_ONCE = 16
_ACKNOWLEDGED_WITHIN_S = 1.0
_GOODBYE_S = 1.0
_NOTHING = Result(
    exit_code=0, timed_out=False, stdout=b"", stdout_bytes=0, stderr=b"", stderr_bytes=0
)


@dataclass(slots=True)
class _Call:
    """A request on its way."""

    number: int
    request: Request
    answer: asyncio.Future[Result]
    sent: bool = False
    """Whether some of it may have reached the supervisor."""


@dataclass(slots=True)
class _Line:
    """One stream, from its greeting to its loss."""

    channel: Channel
    reader: FrameReader
    states: asyncio.Future[dict[int, str]]
    """What the supervisor lists when a stream follows another."""
    listing: int = -1


@dataclass(slots=True)
class _Arrived:
    """Results that the supervisor need not keep any longer."""

    numbers: list[int] = field(default_factory=list)
    size: int = 0
    timer: asyncio.TimerHandle | None = None


class Link:
    """Requests and their results. Many at a time."""

    def __init__(self, line: _Line, greeting: Greeting, dial: Dial | None) -> None:
        """Use `Link.open`."""
        self.greeting = greeting
        self._line = line
        self._dial = dial
        self._calls: dict[int, _Call] = {}
        self._arrived = _Arrived()
        self._last_number = 0
        self._lost: SandboxError | None = None
        self._sending = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._reading: asyncio.Task[SandboxError] | None = None
        self._suspicion: StreamLostError | None = None
        self._attached = asyncio.Event()
        """While there is a stream, and when there will be none any more."""
        self._attached.set()

    @classmethod
    async def open(
        cls, channel: Channel, *, dial: Dial | None, runtime: Runtime | None, timeout_s: float
    ) -> Self:
        """A link to a supervisor that answers; the channel must run `supervisor_command()`.

        Where this fails, the channel and the dial are closed.
        """
        line = _new_line(channel)
        orphan_s = 0.0 if dial is None else bootstrap.ORPHAN_S
        async with AsyncExitStack() as stack:
            if dial is not None:
                stack.push_async_callback(dial.close)
            stack.push_async_callback(channel.close)
            text = bootstrap.choice(runtime=runtime, orphan_s=orphan_s)
            greeting = await _start(line, text, timeout_s=timeout_s)
            stack.pop_all()
        link = cls(line, greeting, dial)
        link._spawn(link._serve())
        return link

    async def ask(self, request: Request, *, timeout_s: float) -> Result:
        """The result of a request; `timeout_s` is when the supervisor counts as wedged.

        Cancelling ends what was asked for. SandboxError when the sandbox is lost.
        """
        if self._lost is not None:
            raise _again(self._lost)
        self._last_number += 1
        call = _Call(self._last_number, request, asyncio.get_running_loop().create_future())
        frames = request.frames(call.number, self.greeting)
        self._calls[call.number] = call
        self._spawn(self._send(call, frames))
        try:
            return await self._answer(call, timeout_s)
        except asyncio.CancelledError:
            if self._lost is None:
                self._spawn(self._say(cancel_frame(call.number)))
            raise
        finally:
            # A cancelled answer still marks the bytes to skip when they come.
            call.answer.cancel()

    async def close(self) -> None:
        """End the supervisor and all that runs. Idempotent; never raises."""
        first = self._lost is None
        self._lose(SandboxError("the sandbox is closed", fix="use it before close()"))
        if first:
            with suppress(TimeoutError, SandboxError):
                async with asyncio.timeout(_GOODBYE_S), self._sending:
                    await self._line.channel.send(BYE)
        await self._stop()

    async def _stop(self) -> None:
        if self._arrived.timer is not None:
            self._arrived.timer.cancel()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(SandboxError):
            await self._line.channel.close()
        if self._dial is not None:
            await self._dial.close()

    # --- out -------------------------------------------------------------------------------------

    async def _answer(self, call: _Call, timeout_s: float) -> Result:
        """Wait; a stream that is silent for too long is doubted once, where another can be had."""
        for doubt in (self._dial is not None, False):
            try:
                async with asyncio.timeout(timeout_s):
                    return await asyncio.shield(call.answer)
            except TimeoutError:
                if not doubt:
                    break
                self._doubt(f"no answer within {timeout_s:.0f} s")
                await self._attached.wait()
        wedged = _wedged(timeout_s)
        self._lose(wedged)
        raise wedged

    async def _send(self, call: _Call, frames: Iterable[bytes]) -> None:
        # A task of its own: half a frame, cut by a cancellation, would break the stream.
        async with self._sending:
            line, call.sent = self._line, True
            for frame in frames:
                if call.answer.done():
                    return
                if not await self._write(line, frame):
                    return

    async def _say(self, frame: bytes) -> None:
        """Send what needs no answer."""
        async with self._sending:
            await self._write(self._line, frame)

    async def _write(self, line: _Line, frame: bytes) -> bool:
        """Whether it was written; a loss is dealt with by who reads."""
        try:
            async with boundary(SandboxError, "sending to the sandbox"):
                await line.channel.send(frame)
        except StreamLostError as error:
            self._doubt(error.why, line)
        except SandboxError as error:
            self._lose(error)
        else:
            return True
        return False

    def _doubt(self, why: str, line: _Line | None = None) -> None:
        """Give a stream up that still looks open."""
        if self._reading is not None and line in (None, self._line):
            self._suspicion = StreamLostError("the stream to the sandbox is silent", why=why)
            self._attached.clear()
            self._reading.cancel()

    def _acknowledge(self, number: int, size: int) -> None:
        arrived = self._arrived
        arrived.numbers.append(number)
        arrived.size += size
        if len(arrived.numbers) >= _ACKNOWLEDGED_AT_ONCE or arrived.size >= CHUNK_BYTES:
            self._acknowledge_now()
        elif arrived.timer is None:
            loop = asyncio.get_running_loop()
            arrived.timer = loop.call_later(_ACKNOWLEDGED_WITHIN_S, self._acknowledge_now)

    def _acknowledge_now(self) -> None:
        arrived, self._arrived = self._arrived, _Arrived()
        if arrived.timer is not None:
            arrived.timer.cancel()
        if self._lost is None:
            self._spawn(self._say(acknowledge_frame(arrived.numbers)))

    # --- in --------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        """Read answers for as long as the sandbox lives, from one stream after the other."""
        try:
            while True:
                error = await self._read_all()
                if self._lost is not None:
                    return
                if self._dial is None or not isinstance(error, StreamLostError):
                    raise error
                await self._reattach(self._dial, error)
        except SandboxError as error:
            self._lose(error)

    async def _read_all(self) -> SandboxError:
        """Take answers until the stream ends; returns why."""
        self._reading = asyncio.create_task(self._read(self._line))
        try:
            return await self._reading
        except asyncio.CancelledError:
            self._reading.cancel()
            if self._suspicion is None:
                raise
            return self._suspicion
        finally:
            self._reading = None

    async def _read(self, line: _Line) -> SandboxError:
        try:
            async with boundary(SandboxError, "reading from the sandbox"):
                while True:
                    await self._take(await line.reader.header(), line)
        except SandboxError as error:
            return error

    async def _take(self, header: Header, line: _Line) -> None:
        # Kept until its answer is complete: a loss in the middle leaves it asked for.
        call = self._calls.get(header.number)
        match header.kind, header.values, call:
            case "result", (code, late, out, out_total, err_total), _Call() if (
                out <= header.length and max(out, header.length - out) <= call.request.most
            ):
                stdout = await line.reader.exactly(out)
                stderr = await line.reader.exactly(header.length - out)
                _resolve(call, Result(code, bool(late), stdout, out_total, stderr, err_total))
                self._acknowledge(header.number, header.length)
            case "result", _, None if 0 < header.number <= self._last_number:
                # It was asked for twice, or is the answer to a call that was given up.
                await line.reader.skip(header.length)
                self._acknowledge(header.number, 0)
            case "pong", (), _Call():
                _resolve(call, _NOTHING)
            case "lost", (), _:
                _fail(call, _result_gone())
            case "list", (), None if header.number == line.listing:
                _tell_states(line, await line.reader.exactly(header.length))
            case _:
                raise broken_protocol(
                    f"nothing asked for `{header.kind}` of request {header.number}"
                )
        self._calls.pop(header.number, None)

    def _lose(self, error: SandboxError) -> None:
        if self._lost is None:
            self._lost = error
        self._attached.set()
        while self._calls:
            _fail(self._calls.popitem()[1], _again(self._lost))

    # --- from one stream to the next -------------------------------------------------------------

    async def _reattach(self, dial: Dial, error: SandboxError) -> None:
        """Find the supervisor again by a new stream; SandboxError when that can't be."""
        log.warning("stream_lost", why=str(error), folder=self.greeting.folder)
        began = time.monotonic()
        self._suspicion = None
        self._attached.clear()
        self._line.states.cancel()
        with suppress(SandboxError):
            await self._line.channel.close()
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                self._line = await self._dialled(dial)
                break
            except StreamLostError as again:
                if time.monotonic() - began > REATTACH_S:
                    raise again from error
            await asyncio.sleep(pause_s)
            pause_s = min(_LONGEST_PAUSE_S, 2 * pause_s)
        self._attached.set()
        self._spawn(self._resume(self._line))
        log.info("stream_attached", after_s=round(time.monotonic() - began, 3))

    async def _dialled(self, dial: Dial) -> _Line:
        channel = await dial(bootstrap.attach_command(self.greeting.folder))
        line = _new_line(channel)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(channel.close)
            try:
                async with asyncio.timeout(_GREETING_S):
                    await line.reader.greeting()
            except TimeoutError:
                raise StreamLostError(
                    "the sandbox does not answer",
                    why=f"its supervisor did not greet a new stream within {_GREETING_S:g} s",
                ) from None
            stack.pop_all()
        return line

    async def _resume(self, line: _Line) -> None:
        """Ask what the supervisor knows, and for what has not arrived."""
        async with self._sending:
            self._last_number += 1
            line.listing = self._last_number
            if not await self._write(line, list_frame(line.listing)):
                return
            try:
                states = await line.states
            except asyncio.CancelledError:
                return
            for call in tuple(self._calls.values()):
                if call.sent and not await self._repeat(line, call, states.get(call.number, "")):
                    return
            for number in states.keys() - self._calls.keys():
                if states[number] == "done":
                    self._acknowledge(number, 0)

    async def _repeat(self, line: _Line, call: _Call, state: str) -> bool:
        """Whether what a call needs could be sent."""
        match state:
            case "running":
                return True
            case "done":
                return await self._write(line, again_frame(call.number))
            case _ if call.answer.done():
                # Given up before it began: nobody waits for it.
                self._calls.pop(call.number, None)
                return True
            case _:
                for frame in call.request.frames(call.number, self.greeting):
                    if not await self._write(line, frame):
                        return False
                return True

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _new_line(channel: Channel) -> _Line:
    return _Line(channel, FrameReader(channel), asyncio.get_running_loop().create_future())


async def _start(line: _Line, choice: bytes, *, timeout_s: float) -> Greeting:
    try:
        async with asyncio.timeout(timeout_s), boundary(SandboxError, "starting the supervisor"):
            await line.channel.send(choice)
            await line.channel.send(bootstrap.program(await line.reader.wanted()))
            return await line.reader.greeting()
    except TimeoutError:
        raise SandboxError(
            "the sandbox does not answer",
            why=f"its supervisor did not start within {timeout_s:g} s",
            fix="check that the image has /bin/sh and the machine is not overloaded",
        ) from None


def _tell_states(line: _Line, text: bytes) -> None:
    pairs = (entry.split() for entry in text.decode("ascii", "replace").splitlines())
    states = {int(number): state for number, state in pairs if number.isdigit()}
    if not line.states.done():
        line.states.set_result(states)


def _resolve(call: _Call, result: Result) -> None:
    if not call.answer.done():
        call.answer.set_result(result)


def _fail(call: _Call | None, error: SandboxError) -> None:
    if call is not None and not call.answer.done():
        call.answer.set_exception(error)


def _again(error: SandboxError) -> SandboxError:
    # One exception object raised in several tasks would mix their tracebacks. The kind stays: it
    # says how the sandbox was lost.
    again = type(error).__new__(type(error), *error.args)
    again.__dict__.update(error.__dict__)
    return again


def _wedged(timeout_s: float) -> SandboxError:
    return SandboxError(
        "the sandbox does not answer",
        why=f"no answer within {timeout_s:.0f} s, long after the command's own time",
        fix="the supervisor or the connection hangs; the episode is tried again elsewhere",
    )


def _result_gone() -> SandboxError:
    return SandboxError(
        "a result was lost",
        why="the supervisor's folder was removed while the command ran",
        fix="a command deleted files under /run or /tmp that were not its own",
    )
