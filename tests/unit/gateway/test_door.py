"""The door from a sandbox: what the policy sends through it is bounded."""

from __future__ import annotations

import asyncio
import struct
from typing import cast

import pytest

from swe_rollout.errors import SandboxError
from swe_rollout.gateway.door import Door, ProgramEnd
from swe_rollout.sandbox.base import ExecResult, Sandbox
from swe_rollout.types.deadline import Deadline

CHUNK = 1 << 20


class _Flood:
    """A sandbox whose policy sends a flood on one connection."""

    def __init__(self) -> None:
        self.left = 64
        self.held: list[int] = []
        self.door: Door | None = None
        self.frame = struct.pack("<II", 1, CHUNK) + b"a" * CHUNK

    async def exec(self, command: list[str], **_: object) -> ExecResult:
        assert self.door is not None
        if command[1] == "send":
            never: asyncio.Future[ExecResult] = asyncio.get_running_loop().create_future()
            return await never
        self.held += [w.transport.get_write_buffer_size() for w in self.door._writers.values()]
        self.left -= 1
        return ExecResult(0 if self.left else 1, self.frame, b"")


async def test_no_more_is_read_than_the_server_takes() -> None:
    served = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(CHUNK):
            pass
        writer.close()
        await writer.wait_closed()
        served.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    flood = _Flood()
    flood.door = Door(cast("Sandbox", flood), server.sockets[0].getsockname()[1], Deadline(60.0))
    async with server:
        await flood.door.carry()
        await served.wait()
    assert max(flood.held) <= CHUNK


@pytest.mark.parametrize(
    ("frame", "code", "said"),
    [(b"3\nno\xff", 3, "no\ufffd"), (b"", -1, ""), (b"-9\n", -1, ""), (b"9" * 9000, -1, "")],
)
async def test_it_ends_with_the_program_whatever_tells_its_end(
    frame: bytes, code: int, said: str
) -> None:
    flood = _Flood()
    flood.frame = struct.pack("<II", 0, len(frame)) + frame
    flood.door = door = Door(cast("Sandbox", flood), 1, Deadline(60.0))
    await door.carry()
    assert door.ended == ProgramEnd(code, said)


class _Lost:
    """A sandbox that is lost as soon as anything is to be carried."""

    async def exec(self, command: list[str], **_: object) -> ExecResult:
        del command
        raise SandboxError("the pod is gone")


async def test_who_loses_its_door_is_told_so() -> None:
    with pytest.raises(SandboxError, match="the pod is gone"):
        await Door(cast("Sandbox", _Lost()), 1, Deadline(60.0)).carry()
