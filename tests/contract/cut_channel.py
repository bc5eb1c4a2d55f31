"""Channels that break as connections do: in the middle of a frame, or by falling silent."""

from __future__ import annotations

import asyncio
import os
import platform
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.session import bootstrap
from swe_rollout.sandbox.session.channel import StreamLostError, SupervisorGoneError

BY_SIGNAL = 128


class CutChannel:
    """The pipes of a process, up to the moment they are cut."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._is_cut = asyncio.Event()
        self.left: int | None = None
        """Bytes that still pass, in either direction; None: no limit."""
        self.way: type[StreamLostError] = StreamLostError
        """What a cut is taken for by who reads."""

    async def send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        passed = self._passing(data)
        with suppress(OSError):
            self.process.stdin.write(passed)
            await self.process.stdin.drain()
        if len(passed) < len(data) or self._is_cut.is_set():
            self.cut()
            raise StreamLostError("cut", why="while sending")

    async def receive(self) -> bytes:
        assert self.process.stdout is not None
        reading = asyncio.ensure_future(self.process.stdout.read(1 << 16))
        cut = asyncio.ensure_future(self._is_cut.wait())
        await asyncio.wait({reading, cut}, return_when=asyncio.FIRST_COMPLETED)
        cut.cancel()
        if not self._is_cut.is_set():
            data = await reading
            passed = self._passing(data)
            if len(passed) < len(data):
                self.cut()
            if passed:
                return passed
        reading.cancel()
        if self._is_cut.is_set():
            raise self.way("cut", why="while receiving")
        raise await self._end()

    async def close(self) -> None:
        """End the stream; its program goes on."""
        self.cut()

    def cut(self) -> None:
        """Close both directions at once."""
        self._is_cut.set()
        if self.process.stdin is not None:
            self.process.stdin.close()
        # There is no public way to close the other pipe.
        transport = self.process._transport.get_pipe_transport(1)  # type: ignore[attr-defined]
        if transport is not None:
            transport.close()

    def fall_silent(self) -> None:
        """Let nothing pass any more, without closing the pipes."""
        self.left = 0
        self._is_cut.set()

    async def _end(self) -> SandboxError:
        """Return the error that a pod would report."""
        why = f"exit code {await self.process.wait()}"
        match self.process.returncode:
            case bootstrap.BROKEN:
                return StreamLostError("broken", why=why)
            case bootstrap.GONE:
                return SupervisorGoneError("gone", why=why)
            case int(code) if code < 0 or code > BY_SIGNAL:
                return StreamLostError("the relay was killed", why=why)
            case _:
                return SandboxError("ended", why=why)

    def _passing(self, data: bytes) -> bytes:
        if self.left is None:
            return data
        passed = data[: self.left]
        self.left -= len(passed)
        return passed


class CutStreamOpener:
    """A `StreamOpener` to a supervisor on this machine, which `start` starts."""

    def __init__(self, folder: Path, *, env: dict[str, str] | None = None) -> None:
        self.program = folder / "supervisor"
        self.program.write_bytes(bootstrap.program(platform.machine()))
        self.program.chmod(0o755)
        self.socket = f"swe-rollout-test-{secrets.token_hex(8)}"
        self.channels: list[CutChannel] = []
        self.reachable = asyncio.Event()
        """Unset: calls wait."""
        self.reachable.set()
        self.refusals = 0
        """How many of the next calls fail with a network error."""
        self.folder = folder
        self._stderr = folder / "stderr"
        self._env = {"PATH": os.environ["PATH"], **(env or {})}

    async def start(self, *, orphan_s: float = 15.0) -> CutChannel:
        """Start the supervisor; one that a failed test leaves behind ends after `orphan_s`."""
        return await self._run(bootstrap.serve_arguments(orphan_s=orphan_s, socket=self.socket))

    async def open(self) -> CutChannel:
        await self.reachable.wait()
        if self.refusals:
            self.refusals -= 1
            raise StreamLostError("refused", why="the network is down")
        return await self._run(bootstrap.relay_arguments(self.socket))

    async def _run(self, arguments: Sequence[str]) -> CutChannel:
        with self._stderr.open("ab") as stderr:
            process = await asyncio.create_subprocess_exec(
                self.program,
                *arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                env=self._env,
                start_new_session=True,
            )
        self.channels.append(CutChannel(process))
        return self.channels[-1]

    async def close(self) -> None:
        """End the processes whose streams are gone."""
        for channel in self.channels:
            channel.cut()
            with suppress(TimeoutError):
                async with asyncio.timeout(5):
                    await channel.process.wait()
            with suppress(ProcessLookupError):
                channel.process.kill()
            await channel.process.wait()
            channel.process._transport.close()  # type: ignore[attr-defined]

    @property
    def now(self) -> CutChannel:
        """The channel in use."""
        return self.channels[-1]
