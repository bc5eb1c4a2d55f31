"""The door from a sandbox: what the policy sends through it is bounded."""

from __future__ import annotations

import asyncio
import struct
from typing import cast

import pytest

from swe_rollout.errors import SandboxError
from swe_rollout.gateway.door import Door, opened
from swe_rollout.sandbox.base import ExecResult, Sandbox

CHUNK = 1 << 20


class _Flood:
    """A sandbox whose policy sends a flood on one connection."""

    def __init__(self) -> None:
        self.left = 64
        self.held: list[int] = []
        self.door: Door | None = None

    async def exec(self, command: list[str], **_: object) -> ExecResult:
        assert self.door is not None
        if command[1] == "send":
            never: asyncio.Future[ExecResult] = asyncio.get_running_loop().create_future()
            return await never
        self.held += [w.transport.get_write_buffer_size() for w in self.door._writers.values()]
        self.left -= 1
        frame = struct.pack("<II", 1, CHUNK) + b"a" * CHUNK
        return ExecResult(0 if self.left else 1, frame, b"")


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
    flood.door = Door(cast("Sandbox", flood), server.sockets[0].getsockname()[1], timeout_s=60.0)
    async with server:
        await flood.door.carry()
        await served.wait()
    assert max(flood.held) <= CHUNK


class _Lost:
    """A sandbox in which a door opens, and nothing works from then on."""

    def __init__(self) -> None:
        self.waited = asyncio.Event()

    async def exec(self, command: list[str], **_: object) -> ExecResult:
        match command:
            case ["uname", "-m"]:
                return ExecResult(0, b"x86_64\n", b"")
            case [_, "serve", *_]:
                return ExecResult(0, b"1234\n", b"")
            case _:
                self.waited.set()
                raise SandboxError("the pod is gone")

    async def write_file(self, path: str, data: bytes, *, mode: int) -> None:
        del path, data, mode


async def test_who_loses_its_door_is_not_to_blame_for_what_it_does_then() -> None:
    lost = _Lost()

    async def play() -> None:
        async with opened(Door(cast("Sandbox", lost), 1, timeout_s=60.0)) as port:
            assert port == 1234
            await lost.waited.wait()

    with pytest.raises(SandboxError, match="the pod is gone"):
        await play()
