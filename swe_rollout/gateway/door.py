"""A door from a sandbox's loopback to a server of this process, over commands alone.

The sandbox has no network. The listener, a small static program, accepts connections there and runs
the harness; two commands at a time carry their bytes, one each way. Whatever the policy sends
through it reaches the server as bytes of a connection, and nothing else. Both outlive this process:
another one takes the door over, and what has no answer yet is sent to it again.
"""

from __future__ import annotations

import asyncio
import re
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from swe_rollout.errors import SandboxError, SweRolloutError
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.sandbox.session.bootstrap import MACHINES
from swe_rollout.types.deadline import Deadline

_FRAME: Final = struct.Struct("<II")
_FOLDER: Final = "/tmp/swe-rollout-door"  # noqa: S108 (in the sandbox)
_PROGRAM: Final = f"{_FOLDER}/listener"
_SOCKET: Final = f"{_FOLDER}/socket"
_CHUNK: Final = 1 << 16
_MOST_BYTES: Final = 16 << 20
_MOST_CONNECTIONS: Final = 256
_START_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class ProgramEnd:
    """How the harness ended."""

    code: int
    said: str
    """The end of what it printed."""


class Door:
    """Carries the connections of one sandbox to `port` on this machine's loopback."""

    def __init__(self, sandbox: Sandbox, port: int, clock: Deadline) -> None:
        self._sandbox, self._port, self._clock = sandbox, port, clock
        self.ended: ProgramEnd | None = None
        """Set when the harness has ended."""
        self._outgoing: asyncio.Queue[bytes] = asyncio.Queue(maxsize=256)
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._tasks = set[asyncio.Task[None]]()

    async def open(self, command: str, env: Mapping[str, str]) -> None:
        """Start the listener, which runs `command` with its port in `$DOOR_PORT`.

        Raises SandboxError.
        """
        machine = await self._sandbox.exec(["uname", "-m"], cwd="/", timeout_s=_START_S)
        name = machine.stdout.decode(errors="replace").strip()
        if name not in MACHINES:
            raise SandboxError(
                f"there is no listener for {name or 'this machine'}", retryable=False
            )
        program = files("swe_rollout.sandbox.listener") / f"listener.{name}"
        await self._sandbox.write_file(_PROGRAM, program.read_bytes(), mode=0o755)
        begun = await self._sandbox.exec(
            [_PROGRAM, "serve", _SOCKET, command], env=env, timeout_s=_START_S
        )
        if not begun.ok:
            raise SandboxError(
                "nothing can listen in the sandbox", why=begun.stderr.decode(errors="replace")[:200]
            )

    async def take(self) -> None:
        """Take over a door that another process has opened. Raises SandboxError.

        A listener that is gone was ended by the program, and `carry` will say so.
        """
        await self._sandbox.exec([_PROGRAM, "take", _SOCKET], cwd="/", timeout_s=_START_S)

    async def stop(self) -> None:
        """End the harness and the listener, as far as they are still there."""
        with suppress(SweRolloutError):
            await self._sandbox.exec([_PROGRAM, "stop", _SOCKET], cwd="/", timeout_s=_START_S)

    async def carry(self) -> None:
        """Carry bytes both ways until cancelled. Raises SandboxError when the sandbox is lost.

        It returns when the harness has ended, or has ended its own door.
        """
        both = [asyncio.create_task(self._send()), asyncio.create_task(self._receive())]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (*both, *self._tasks):
                task.cancel()
            for writer in self._writers.values():
                writer.close()
            # What broke is told even if the harness ended in the same moment.
            for task in both:
                if task.done() and not task.cancelled():
                    task.result()

    async def _receive(self) -> None:
        while True:
            found = await self._sandbox.exec(
                [_PROGRAM, "wait", _SOCKET],
                cwd="/",
                timeout_s=self._clock.remaining_s + _START_S,
                max_output=_MOST_BYTES,
            )
            if found.timed_out:
                continue  # The clock stood still for a while.
            if not found.ok or found.truncated:
                return
            data = found.stdout
            at = 0
            while len(data) - at >= _FRAME.size:
                number, length = _FRAME.unpack_from(data, at)
                at += _FRAME.size
                frame = data[at : at + length]
                at += length
                if not number:
                    self.ended = _end_of(frame)
                    return
                await self._received(number, frame)

    async def _received(self, number: int, data: bytes) -> None:
        writer = self._writers.get(number)
        if not data:
            if writer is not None:
                writer.close()
            return
        if writer is None:
            if len(self._writers) >= _MOST_CONNECTIONS:
                await self._outgoing.put(_FRAME.pack(number, 0))
                return
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            self._writers[number] = writer
            task = asyncio.create_task(self._pump(number, reader))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        writer.write(data)
        # Nothing more is read from the sandbox than the server takes.
        with suppress(ConnectionError):
            await writer.drain()

    async def _pump(self, number: int, reader: asyncio.StreamReader) -> None:
        """Queue what the server sends on a connection, and its end."""
        try:
            while data := await reader.read(_CHUNK):
                await self._outgoing.put(_FRAME.pack(number, len(data)) + data)
        except ConnectionError:
            pass
        await self._outgoing.put(_FRAME.pack(number, 0))
        self._writers.pop(number).close()

    async def _send(self) -> None:
        while True:
            frames = [await self._outgoing.get()]
            while not self._outgoing.empty():
                frames.append(self._outgoing.get_nowait())
            await self._sandbox.exec(
                [_PROGRAM, "send", _SOCKET],
                cwd="/",
                stdin=b"".join(frames),
                timeout_s=self._clock.remaining_s + _START_S,
            )


def _end_of(frame: bytes) -> ProgramEnd:
    """Read how the harness ended. Whatever ran in the sandbox may have written it."""
    code, _, said = frame.decode(errors="replace").partition("\n")
    return ProgramEnd(int(code) if re.fullmatch("[0-9]{1,3}", code) else -1, said.strip())
