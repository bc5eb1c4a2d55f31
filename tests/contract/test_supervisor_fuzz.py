"""Whatever frames a supervisor receives, it then responds to a ping or has ended in order.

The seeds are fixed. `FUZZ_FRAMES` says how many frames.
"""

from __future__ import annotations

import asyncio
import os
import platform
import random
import struct
from pathlib import Path

import pytest

from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.local.pipe_channel import PipeChannel
from swe_rollout.sandbox.session import bootstrap
from swe_rollout.sandbox.session.connection import Handshake, SupervisorConnection
from swe_rollout.sandbox.session.frames import RequestKind, ResponseKind, word
from swe_rollout.sandbox.session.seal import Frame

FRAMES = 10_000
A_SESSION = 250
PATIENCE_S = 30.0
LAST = 999_999_999
CHEAP = (
    *(RequestKind.ACK, RequestKind.AGAIN, RequestKind.CANCEL),
    *(RequestKind.PING, RequestKind.LIST, RequestKind.CLEAR),
)
# No combination of these lets a program start or write a file outside the test's folder.
LETTERS = 'abz019/._- "\\$}{\t\x80\xff\x01é'


class Fuzzer:
    """Frames that are valid, nearly valid, and invalid; all of them sealed."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.chance = random.Random(seed)
        self._folder = folder

    def frame(self) -> Frame:
        """Return a frame that does not end the session, whatever its values."""
        chance = self.chance
        number = chance.choice((0, 1, 2, 3, 17, 10**17, (1 << 64) - 1))
        match chance.random():
            case share if share < 0.35:
                kind = chance.choice((RequestKind.PUT, RequestKind.SCRIPT))
                return Frame(number, kind, chance.randbytes(chance.choice((0, 1, 80, 3000))))
            case share if share < 0.38:
                return Frame(chance.randrange(10**6), *self._started())
            case _:
                return Frame(number, chance.choice(CHEAP), chance.randbytes(chance.randrange(30)))

    def invalid(self) -> Frame:
        """Return a frame that no session sends."""
        chance = self.chance
        text = chance.randbytes(chance.randrange(60))
        kinds = (RequestKind.RUN, RequestKind.READ, RequestKind.WRITE, RequestKind.HELLO, 0, 99)
        head = struct.pack("<IQII", 1, 1, chance.choice((0, 1, 1 << 31)), chance.choice((0, 9)))
        return Frame(7, chance.choice(kinds), chance.choice((b"", text, head + text + b"x")))

    def _started(self) -> tuple[RequestKind, bytes]:
        text = "".join(self.chance.choice(LETTERS) for _ in range(self.chance.randrange(30)))
        inside = word(f"{self._folder}/{text}")
        return self.chance.choice(
            (
                (RequestKind.RUN, _run("/", [], ["true", text])),
                (RequestKind.RUN, _run("/", [f"A={text}"], [text or "x"])),
                (RequestKind.READ, struct.pack("<Q", 100) + inside),
                (RequestKind.WRITE, struct.pack("<I", 0o644) + inside),
            )
        )


def _run(cwd: str, env: list[str], arguments: list[str]) -> bytes:
    words = b"".join(map(word, [cwd, *env, *arguments]))
    return struct.pack("<IQII", 1000, 100, len(env), len(arguments)) + words


async def _opened(folder: Path) -> SupervisorConnection:
    program = folder / "supervisor"
    program.write_bytes(bootstrap.program(platform.machine()))
    program.chmod(0o755)
    channel = await PipeChannel.start(
        [str(program), *bootstrap.serve_arguments()],
        env={"PATH": os.environ["PATH"]},
    )
    return await Handshake().connect(channel, timeout_s=PATIENCE_S)


async def _responds_or_ends(connection: SupervisorConnection) -> str:
    """Return whether it responds or has ended; fails when it hangs."""

    async def pinged() -> str:
        try:
            while True:
                frame = await connection.reader.frame(connection.seal)
                if (frame.number, frame.kind) == (LAST, ResponseKind.PONG):
                    return "responds"
        except SandboxError:
            return "ended"

    return await asyncio.wait_for(pinged(), PATIENCE_S)


async def _send(connection: SupervisorConnection, frames: list[Frame]) -> None:
    frames = [*frames, Frame(LAST, RequestKind.PING)]
    try:
        await connection.channel.send(b"".join(map(connection.seal.seal, frames)))
    except SandboxError:
        return  # it has ended, which reading reports too


async def test_random_frames_never_wedge_it(tmp_path: Path) -> None:
    frames = int(os.environ.get("FUZZ_FRAMES", FRAMES))
    for seed in range(frames // A_SESSION):
        fuzzer = Fuzzer(seed, tmp_path)
        connection = await _opened(tmp_path)
        async with asyncio.TaskGroup() as group:
            group.create_task(_send(connection, [fuzzer.frame() for _ in range(A_SESSION)]))
            assert await _responds_or_ends(connection) == "responds", f"seed {seed}"
        await connection.channel.close()


async def test_invalid_frames_end_it_in_order(tmp_path: Path) -> None:
    for seed in range(24):
        fuzzer = Fuzzer(seed, tmp_path)
        connection = await _opened(tmp_path)
        async with asyncio.TaskGroup() as group:
            group.create_task(_send(connection, [fuzzer.frame(), fuzzer.invalid()]))
            assert await _responds_or_ends(connection) == "ended", f"seed {seed}"
        await connection.channel.close()


@pytest.mark.threat(point=1)
async def test_bytes_that_are_not_sealed_end_it_in_order(tmp_path: Path) -> None:
    chance = random.Random(1)
    for size in (32, 64, 1000, 70_000):
        connection = await _opened(tmp_path)
        await connection.channel.send(struct.pack("<QII", 1, RequestKind.BYE, 0))
        await connection.channel.send(chance.randbytes(size))
        assert await _responds_or_ends(connection) == "ended"
        await connection.channel.close()
