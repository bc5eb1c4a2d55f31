"""The door from a sandbox: what the policy sends through it is bounded."""

from __future__ import annotations

import asyncio
import struct
from typing import cast

from swe_rollout.gateway.door import Door
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
