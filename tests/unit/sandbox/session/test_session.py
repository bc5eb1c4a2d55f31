"""Sessions with a misbehaving supervisor, over a channel whose other end is the test."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable

import pytest

from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.base import ExecResult
from swe_rollout.sandbox.session import session as session_module
from swe_rollout.sandbox.session.frames import RequestKind, ResponseKind
from swe_rollout.sandbox.session.seal import HEADER_BYTES, Frame, FrameSeal, Side, parse_header
from swe_rollout.sandbox.session.session import Session
from waits import PATIENCE_S

Running = asyncio.Task[ExecResult]
_READY = b"swe-rollout 3 ready\n"
_WORDS = 20


def _values(code: int, out: bytes, err: bytes = b"", *, late: int = 0, more: int = 0) -> bytes:
    sizes = (len(out), len(out) + more, len(err), len(err))
    return struct.pack("<IIQQQQ", code, late, *sizes)


class _FarEnd:
    """A channel whose other end is the test."""

    def __init__(self) -> None:
        self.said: asyncio.Queue[bytes | SandboxError] = asyncio.Queue()
        self.heard: list[Frame] = []
        self.grew = asyncio.Event()
        self.reads = asyncio.Event()
        self.reads.set()
        self.closed = 0
        self.session: Session
        """Our end, once it is open."""
        self.supervisor: FrameSeal | None = None
        self._bytes = bytearray()

    def say(self, data: bytes | SandboxError) -> None:
        self.said.put_nowait(data)

    def respond(self, number: int, kind: ResponseKind, body: bytes = b"") -> None:
        """Send a sealed response."""
        assert self.supervisor is not None
        self.say(self.supervisor.seal(Frame(number, kind, body)))

    def result(self, number: int, out: bytes = b"", err: bytes = b"", code: int = 0) -> None:
        """Send a result."""
        if out or err:
            self.respond(number, ResponseKind.OUTPUT, out + err)
        self.respond(number, ResponseKind.RESULT, _values(code, out, err))

    async def hears(self, number: int, kind: RequestKind) -> Frame:
        return await self._until(lambda frame: (frame.number, frame.kind) == (number, kind))

    async def _until(self, wanted: Callable[[Frame], bool]) -> Frame:
        async with asyncio.timeout(PATIENCE_S):
            while (found := next(filter(wanted, self.heard), None)) is None:
                self.grew.clear()
                await self.grew.wait()
        return found

    async def send(self, data: bytes) -> None:
        await self.reads.wait()
        self._bytes += data
        while len(self._bytes) >= HEADER_BYTES:
            header = parse_header(bytes(self._bytes[:HEADER_BYTES]))
            end = HEADER_BYTES + header.length
            if len(self._bytes) < end:
                break
            self._hear(Frame(header.number, header.kind, bytes(self._bytes[HEADER_BYTES:end])))
            del self._bytes[:end]

    def _hear(self, frame: Frame) -> None:
        self.heard.append(frame)
        if frame.kind == RequestKind.HELLO:
            self.supervisor = FrameSeal(frame.body, frame.number, side=Side.SUPERVISOR)
            self.respond(0, ResponseKind.READY, b"/bin/sh")
        self.grew.set()

    async def receive(self) -> bytes:
        item = await self.said.get()
        if isinstance(item, SandboxError):
            raise item
        return item

    async def close(self) -> None:
        self.closed += 1


@pytest.fixture
async def far() -> AsyncIterator[_FarEnd]:
    far = _FarEnd()
    far.say(_READY)
    far.session = await Session.open(far, workdir="/testbed", env={"EPISODE": "7"})
    yield far
    await far.session.close()


@pytest.fixture
async def running(far: _FarEnd) -> Running:
    """A command whose request has arrived."""
    task = asyncio.create_task(far.session.exec("one"))
    await far.hears(1, RequestKind.RUN)
    return task


async def test_results_may_arrive_in_any_order_and_in_any_pieces(far: _FarEnd) -> None:
    first = asyncio.create_task(far.session.exec("one"))
    second = asyncio.create_task(far.session.exec("two"))
    await far.hears(2, RequestKind.RUN)
    assert far.supervisor is not None
    data = b"".join(
        far.supervisor.seal(frame)
        for frame in (
            Frame(2, ResponseKind.OUTPUT, b"tw"),
            Frame(2, ResponseKind.OUTPUT, b"o"),
            Frame(2, ResponseKind.RESULT, _values(0, b"two")),
            Frame(1, ResponseKind.OUTPUT, b"no"),
            Frame(1, ResponseKind.RESULT, _values(5, b"", b"no", more=7)),
        )
    )
    for byte in data:
        far.say(bytes([byte]))
    assert (await second).stdout == b"two"
    result = await first
    assert (result.exit_code, result.stderr, result.stdout_bytes) == (5, b"no", 7)
    assert result.truncated


async def test_the_session_s_environment_goes_with_every_command(far: _FarEnd) -> None:
    task = asyncio.create_task(far.session.exec("one", env={"OTHER": "it's"}))
    frame = await far.hears(1, RequestKind.RUN)
    words = frame.body[_WORDS:].split(b"\0")
    assert words == [b"/testbed", b"EPISODE=7", b"OTHER=it's", b"/bin/sh", b"-c", b"one", b""]
    far.result(1)
    assert (await task).ok


async def test_a_lost_channel_fails_every_call_and_all_later_ones(far: _FarEnd) -> None:
    tasks = [asyncio.create_task(far.session.exec("one")) for _ in range(3)]
    await far.hears(3, RequestKind.RUN)
    far.say(SandboxError("the pod is gone", why="evicted", fix="more memory", retryable=False))
    for task in tasks:
        with pytest.raises(SandboxError) as caught:
            await task
        assert (caught.value.why, caught.value.fix) == ("evicted", "more memory")
        assert not caught.value.retryable
    with pytest.raises(SandboxError, match="the pod is gone"):
        await far.session.read_file("x")


async def test_the_end_of_the_stream_is_a_loss(far: _FarEnd, running: Running) -> None:
    far.respond(1, ResponseKind.OUTPUT, b"half")
    far.say(b"")
    with pytest.raises(SandboxError, match="lost"):
        await running
    await far.session.close()


_BROKEN = {
    "of no request": [Frame(9, ResponseKind.RESULT, _values(0, b""))],
    "a second result": [Frame(1, ResponseKind.RESULT, _values(0, b""))] * 2,
    "a pong to nobody": [Frame(9, ResponseKind.PONG)],
    "too few values": [Frame(1, ResponseKind.RESULT, b"\0" * 8)],
    "less output than it says": [Frame(1, ResponseKind.RESULT, _values(0, b"two"))],
    "output of two at once": [
        Frame(1, ResponseKind.OUTPUT, b"a"),
        Frame(2, ResponseKind.OUTPUT, b"b"),
    ],
    "endless output": [Frame(1, ResponseKind.OUTPUT, b"x" * (1 << 20))] * 3,
    "a list nobody asked for": [Frame(1, ResponseKind.STATES)],
    "no kind": [Frame(1, 200)],
}


@pytest.mark.threat(point=1)
@pytest.mark.parametrize("frames", _BROKEN.values(), ids=_BROKEN)
async def test_a_broken_protocol_is_a_lost_sandbox(far: _FarEnd, frames: list[Frame]) -> None:
    tasks = [asyncio.create_task(far.session.exec("one")) for _ in range(2)]
    await far.hears(2, RequestKind.RUN)
    assert far.supervisor is not None
    far.say(b"".join(map(far.supervisor.seal, frames)))
    with pytest.raises(SandboxError, match="protocol"):
        await tasks[1]
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.threat(point=1)
@pytest.mark.parametrize(
    "forged",
    [
        b"garbage\n" * 5,
        struct.pack("<QII16s", 1, ResponseKind.RESULT, 40, b"") + _values(0, b""),
        struct.pack("<QII16s", 1, ResponseKind.OUTPUT, 1 << 31, b""),
    ],
)
async def test_a_frame_that_is_not_sealed_is_tampering(
    far: _FarEnd, running: Running, forged: bytes
) -> None:
    far.say(forged)
    with pytest.raises(SandboxError, match="tampered"):
        await running


@pytest.mark.threat(point=1)
async def test_a_frame_that_was_sent_before_is_tampering(far: _FarEnd, running: Running) -> None:
    assert far.supervisor is not None
    heard = far.supervisor.seal(Frame(1, ResponseKind.RESULT, _values(0, b"")))
    far.say(heard)
    await running
    other = asyncio.create_task(far.session.exec("two"))
    await far.hears(2, RequestKind.RUN)
    far.say(heard)
    with pytest.raises(SandboxError, match="tampered"):
        await other


async def test_a_close_that_is_cancelled_closes_the_channel(far: _FarEnd) -> None:
    far.reads.clear()
    closing = asyncio.create_task(far.session.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)
    assert far.closed == 1
    far.reads.set()


async def test_a_supervisor_that_hangs_is_an_error(
    far: _FarEnd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "_GRACE_S", 0.05)
    with pytest.raises(SandboxError, match="does not answer"):
        await far.session.exec("one", timeout_s=0.01)
    with pytest.raises(SandboxError, match="does not answer"):
        await far.session.exec("two")


async def test_a_far_end_that_never_reads_is_an_error(
    far: _FarEnd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "_GRACE_S", 0.05)
    far.reads.clear()
    with pytest.raises(SandboxError, match="does not answer"):
        await far.session.exec("one", timeout_s=0.01)


async def test_cancelling_sends_a_kill_and_drops_the_late_result(
    far: _FarEnd, running: Running
) -> None:
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await far.hears(1, RequestKind.CANCEL)
    other = asyncio.create_task(far.session.exec("two"))
    await far.hears(2, RequestKind.RUN)
    far.result(1, b"late", code=137)
    far.result(2, b"good")
    assert (await other).stdout == b"good"


async def test_cancelling_in_the_middle_of_a_frame_does_not_cut_it(far: _FarEnd) -> None:
    far.reads.clear()
    task = asyncio.create_task(far.session.exec("one", stdin=b"12345"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    far.reads.set()
    await far.hears(1, RequestKind.CANCEL)
    assert [frame.kind for frame in far.heard if frame.number == 1][-3:] == [
        RequestKind.PUT,
        RequestKind.RUN,
        RequestKind.CANCEL,
    ]


async def test_large_bodies_travel_in_pieces(far: _FarEnd) -> None:
    task = asyncio.create_task(far.session.exec("cat", stdin=bytes(3 << 20)))
    await far.hears(1, RequestKind.RUN)
    sizes = [len(frame.body) for frame in far.heard if frame.kind == RequestKind.PUT]
    assert sizes == [1 << 20] * 3
    far.result(1)
    await task


async def test_a_ping_returns_at_the_pong(far: _FarEnd) -> None:
    task = asyncio.create_task(far.session.ping())
    await far.hears(1, RequestKind.PING)
    far.respond(1, ResponseKind.PONG)
    await task
    with pytest.raises(SandboxError, match="does not answer"):
        await far.session.ping(timeout_s=0.01)


async def test_processes_that_do_not_end_are_an_error(far: _FarEnd) -> None:
    task = asyncio.create_task(far.session.end_processes())
    await far.hears(1, RequestKind.CLEAR)
    far.result(1, err=b"processes do not end", code=16)
    with pytest.raises(SandboxError, match="do not end"):
        await task


async def test_a_command_that_can_not_be_encoded_is_refused_before_anything_is_sent(
    far: _FarEnd,
) -> None:
    before = len(far.heard)
    for arguments in (["a\0b"], ["env", "x\0"]):
        with pytest.raises(ValueError, match="NUL"):
            await far.session.exec(arguments)
    with pytest.raises(ValueError, match="environment"):
        await far.session.exec("one", env={"A=B": "1"})
    with pytest.raises(ValueError, match="argument"):
        await far.session.exec([])
    assert len(far.heard) == before


@pytest.mark.parametrize(
    ("greeting", "words", "retryable"),
    [
        ("Welcome to Ubuntu", "Welcome to Ubuntu", True),
        ("swe-rollout 3 wants s390x", "s390x", False),
    ],
)
async def test_a_wrong_greeting_or_no_supervisor_closes_the_channel(
    greeting: str, words: str, *, retryable: bool
) -> None:
    far = _FarEnd()
    far.say(f"{greeting}\n".encode())
    with pytest.raises(SandboxError) as caught:
        await Session.open(far, workdir="/")
    assert words in caught.value.why
    assert caught.value.retryable is retryable
    assert far.closed == 1


async def test_a_missing_greeting_closes_the_channel() -> None:
    far = _FarEnd()
    with pytest.raises(SandboxError, match="does not answer"):
        await Session.open(far, workdir="/", timeout_s=0.02)
    assert far.closed == 1


async def test_closing_fails_what_is_pending_and_closes_the_channel(
    far: _FarEnd, running: Running
) -> None:
    await far.session.close()
    await far.session.close()
    with pytest.raises(SandboxError, match="closed"):
        await running
    assert far.closed == 2


async def test_results_are_acknowledged_many_at_a_time(far: _FarEnd) -> None:
    for number in range(1, 17):
        task = asyncio.create_task(far.session.exec("one"))
        await far.hears(number, RequestKind.RUN)
        far.result(number)
        await task
    frame = await far.hears(0, RequestKind.ACK)
    assert struct.unpack("<16Q", frame.body) == tuple(range(1, 17))


async def test_long_scripts_travel_as_bodies(far: _FarEnd) -> None:
    task = asyncio.create_task(far.session.exec("#" * 200_000))
    assert len((await far.hears(1, RequestKind.SCRIPT)).body) == 200_000
    words = (await far.hears(1, RequestKind.RUN)).body[_WORDS:].split(b"\0")
    assert words == [b"/testbed", b"EPISODE=7", b"/bin/sh", b""]
    await far.session.close()
    with pytest.raises(SandboxError, match="closed"):
        await task
