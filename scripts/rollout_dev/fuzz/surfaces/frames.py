"""Streams to and from a supervisor, and the connections that carry them to pods.

A compromised supervisor knows its session's key, so its frames are sealed; everything else in them
is arbitrary. Frames of a session are tested against the real supervisor.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import struct
import tempfile
from pathlib import Path
from typing import cast

import aiohttp

from rollout_dev.fuzz.surface import promise, run_async, split_head, surface
from swe_rollout.cluster.exec import V5, ExecStream
from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.base import ExecResult, SandboxDelta
from swe_rollout.sandbox.kodo import exec_channel
from swe_rollout.sandbox.local.pipe_channel import PipeChannel
from swe_rollout.sandbox.session import bootstrap
from swe_rollout.sandbox.session.connection import Handshake
from swe_rollout.sandbox.session.frames import RequestKind, ResponseKind, word
from swe_rollout.sandbox.session.seal import HEADER_BYTES, Frame, FrameSeal, Side
from swe_rollout.sandbox.session.session import Session

_MOST_OUTPUT = 1000
_MOST_FRAMES = 400
_PATIENCE_S = 60.0


def _bytes(value: object) -> bytes:
    return value.encode("latin-1", "replace") if isinstance(value, str) else b""


def _number(value: object, most: int) -> int:
    return value % most if isinstance(value, int) else 0


def _list(data: bytes) -> list[object]:
    try:
        value: object = json.loads(data)
    except (ValueError, RecursionError):
        return []
    return value[:_MOST_FRAMES] if isinstance(value, list) else []


# What a supervisor sends


class _Supervisor:
    """A channel to a supervisor that sends an input, sealed with the session's key."""

    def __init__(self, script: list[object]) -> None:
        lines = [each for each in script if isinstance(each, str)]
        self._start = lines[:-1][:3]
        self._greeting = [lines[-1] if lines else ""]
        self._frames = [each for each in script if isinstance(each, list)]
        self._sent = asyncio.Event()
        self._seal: FrameSeal | None = None
        self._asked = 0

    async def send(self, data: bytes) -> None:
        key = data[HEADER_BYTES:]
        if self._seal is None and len(key) == 32:  # noqa: PLR2004 - the greeting
            self._seal = FrameSeal(key, 1, side=Side.SUPERVISOR)
        self._sent.set()

    async def receive(self) -> bytes:
        if self._start:
            return _bytes(self._start.pop(0))
        if self._seal is None:
            return b""
        if self._greeting:
            return self._seal.seal(Frame(1, ResponseKind.READY, _bytes(self._greeting.pop())))
        # Requests have been sent by now.
        await asyncio.sleep(0.001 if not self._asked else 0)
        self._asked += 1
        while self._frames:
            match self._frames.pop(0):
                case [number, kind, body]:
                    frame = Frame(_number(number, 1 << 64), _number(kind, 1 << 32), _bytes(body))
                    return self._seal.seal(frame)
        return b""

    async def close(self) -> None:
        pass


def _read_results(data: bytes) -> None:
    run_async(_session(_list(data)))


async def _session(script: list[object]) -> None:
    channel = _Supervisor(script)
    try:
        session = await Session.open(channel, workdir="/", timeout_s=_PATIENCE_S)
    except SandboxError:
        return
    session.track()
    asked = (
        session.exec(["true"], max_output=_MOST_OUTPUT),
        session.read_file("/x", max_bytes=_MOST_OUTPUT),
        session.ping(timeout_s=_PATIENCE_S),
        session.changes(),
        session.end_processes(),
    )
    async with asyncio.timeout(_PATIENCE_S):
        found = await asyncio.gather(*asked, return_exceptions=True)
    await session.close()
    for each in found:
        match each:
            case ExecResult():
                promise(len(each.stdout) <= 2 * _MOST_OUTPUT, "more output than was asked for")
            case bytes():
                promise(len(each) <= 2 * _MOST_OUTPUT + 2, "a larger file than was asked for")
            case SandboxDelta() | None | SandboxError() | OSError():
                pass
            case BaseException():
                raise each


RESULTS = surface("supervisor-results", _read_results)


# What a session sends

_LETTERS = 'abz019/._- "\\$}{\t\x80\xff\x01é'
_CHEAP = {
    *(RequestKind.ACK, RequestKind.AGAIN, RequestKind.CANCEL, RequestKind.PING, RequestKind.LIST),
    *(RequestKind.CLEAR, RequestKind.PUT, RequestKind.SCRIPT),
}
_LAST = 999_999_999


def _request(folder: str, each: object) -> Frame | None:  # noqa: PLR0911 - one for each kind
    match each:
        case [number, kind, body]:
            pass
        case _:
            return None
    number, kind, data = _number(number, 1 << 64), _number(kind, 256), _bytes(body)
    text = "".join(c for c in data.decode("latin-1") if c in _LETTERS)[:60]
    match kind:
        case _ if kind in _CHEAP:
            return Frame(number, kind, data)
        case RequestKind.RUN:
            # No combination of these letters starts a program that does anything.
            words = [word("/"), word(f"A={text}"), word("true"), word(text)]
            return Frame(number, kind, struct.pack("<IQII", 1000, 100, 1, 2) + b"".join(words))
        case RequestKind.READ:
            return Frame(number, kind, struct.pack("<Q", 100) + word(f"{folder}/{_inside(text)}"))
        case RequestKind.WRITE:
            return Frame(number, kind, struct.pack("<I", 0o644) + word(f"{folder}/{_inside(text)}"))
        case RequestKind.TRACK | RequestKind.CHANGES | RequestKind.RESTORE:
            pairs = word("t") + word(f"{folder}/tree")
            return Frame(number, kind, struct.pack("<QQQI", number % 5, 1000, 10_000, 2) + pairs)
        case RequestKind.HELLO | RequestKind.BYE:
            return None
        case _:
            return Frame(number, kind, data)


def _prepared(folder: Path) -> tuple[Path, Path]:
    """Return the program, and a folder too deep for any path to climb out of."""
    deep = folder.joinpath(*"abcdefghijkl")
    (deep / "tree").mkdir(parents=True)
    program = folder / "supervisor"
    program.write_bytes(bootstrap.program(platform.machine()))
    program.chmod(0o755)
    return program, deep


def _inside(text: str) -> str:
    return text.replace("..", "__")


async def _supervised(script: list[object]) -> None:
    with tempfile.TemporaryDirectory(prefix="fuzz-requests-") as folder:
        program, deep = _prepared(Path(folder))
        channel = await PipeChannel.start(
            [str(program), *bootstrap.serve_arguments()], env={"PATH": os.environ["PATH"]}
        )
        try:
            connection = await Handshake().connect(channel, timeout_s=_PATIENCE_S)
            frames = [frame for each in script if (frame := _request(str(deep), each))]
            frames.append(Frame(_LAST, RequestKind.PING))

            async def send() -> None:
                try:
                    await channel.send(b"".join(map(connection.seal.seal, frames)))
                except SandboxError:
                    return  # it has ended, as reading shows too

            async with asyncio.timeout(_PATIENCE_S), asyncio.TaskGroup() as group:
                group.create_task(send())
                try:
                    while True:
                        frame = await connection.reader.frame(connection.seal)
                        if (frame.number, frame.kind) == (_LAST, ResponseKind.PONG):
                            break
                except SandboxError as error:
                    promise(
                        "tampered" not in str(error), "the supervisor sent what it has not sealed"
                    )
        finally:
            await channel.close()


def _send_requests(data: bytes) -> None:
    run_async(_supervised(_list(data)))


REQUESTS = surface("supervisor-requests", _send_requests)


# What carries streams to pods


class _Socket:
    """A WebSocket that delivers frames and closes."""

    protocol = V5
    closed = False
    close_code = 1006

    def __init__(self, frames: list[bytes]) -> None:
        self._frames = frames

    async def receive(self) -> aiohttp.WSMessage:
        if self._frames:
            return aiohttp.WSMessage(aiohttp.WSMsgType.BINARY, self._frames.pop(0), None)
        return aiohttp.WSMessage(aiohttp.WSMsgType.CLOSED, None, None)

    async def send_bytes(self, data: bytes) -> None:
        pass

    async def close(self) -> None:
        self.closed = True

    def get_extra_info(self, name: str) -> None:
        """Return None, as there is no underlying connection. `name` is the requested property."""
        del name


def _read_exec(data: bytes) -> None:
    head, body = split_head(data)
    script = _list(body)
    if head == "runner":
        match script:
            case [int(code), str(text), *_]:
                exec_channel._taken(exec_channel.RunnerResult(code, text))  # noqa: SLF001 - pure
        return
    run_async(_stream([_bytes(each) for each in script]))


async def _stream(frames: list[bytes]) -> None:
    stream = ExecStream(cast("aiohttp.ClientWebSocketResponse", _Socket(frames)), pod="p")
    try:
        while await stream.receive():
            pass
    finally:
        await stream.close()


EXEC = surface("exec-streams", _read_exec, SandboxError)
