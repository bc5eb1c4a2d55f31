"""A channel over the pipes of a process on this machine, with a deadline and a cleanup callback.

The local sandbox uses it; the contract suite runs sessions over bare shells with it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from typing import Self

from swe_rollout.errors import SandboxDestroyedError, SandboxError, boundary

_READ_BYTES = 1 << 16
_PIPE_BYTES = 1 << 20
_RECENT_S = 0.5
"""Evidence of why a supervisor ended may appear this long before its end is noticed."""
_END_S = 5.0
"""The time a supervisor has to kill its commands and end."""


async def _nothing() -> None:
    pass


class PipeChannel:
    """A `Channel` over the stdin and stdout of a supervisor process."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        *,
        stderr: int,
        at_end: Callable[[], Awaitable[None]],
        deadline_s: float,
        evidence: Callable[[], str],
    ) -> None:
        """Use `PipeChannel.start`."""
        self._process = process
        self._stderr = stderr
        self._at_end = at_end
        self._evidence = RecentEvidence(evidence)
        self._why = ""
        self._expired = False
        self._ending: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(deadline_s, self._expire, deadline_s)

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        at_end: Callable[[], Awaitable[None]] = _nothing,
        deadline_s: float = 7200.0,
        evidence: Callable[[], str] = str,
    ) -> Self:
        """Start a process. `at_end` runs once, after it ended or could not be started.

        `evidence` returns the proof, if there is any, that the sandbox's own processes ended it; it
        is called when the process ended by itself, before `at_end`.
        """
        # What is written there is read once, at the end, and never more than the pipe holds.
        with ExitStack() as always:
            async with AsyncExitStack() as cleanup:
                cleanup.push_async_callback(at_end)
                stderr, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
                always.callback(os.close, writing)
                cleanup.callback(os.close, stderr)
                spawning = asyncio.create_task(_spawn(command, env=env, stderr=writing))
                cleanup.push_async_callback(_abandon, spawning)
                # Shielded: asyncio may wait for ever when a spawn is cancelled before its pipes
                # are up.
                process = await asyncio.shield(spawning)
                cleanup.pop_all()
        return cls(process, stderr=stderr, at_end=at_end, deadline_s=deadline_s, evidence=evidence)

    @property
    def ended(self) -> bool:
        """Whether the process has ended or is ending."""
        return self._ending is not None

    async def send(self, data: bytes) -> None:
        stdin = self._process.stdin
        if stdin is None:
            raise await self._loss()
        try:
            stdin.write(data)
            await stdin.drain()
        except (OSError, RuntimeError) as error:
            raise await self._loss() from error

    async def receive(self) -> bytes:
        """Return some bytes; raises SandboxError with the reason when the process has ended."""
        stdout = self._process.stdout
        if stdout is None:
            raise await self._loss()
        self._evidence.look(asyncio.get_running_loop().time())
        data = await stdout.read(_READ_BYTES)
        # Ending kills commands; their output from then on is not part of a result.
        if not data or self._why:
            raise await self._loss()
        return data

    async def close(self) -> None:
        """End the process and its children; finish even if the caller is cancelled."""
        if self._ending is None:
            self._why = "it was closed"
            self._ending = asyncio.create_task(self._end())
        await asyncio.shield(self._ending)

    async def _end(self) -> None:
        self._timer.cancel()
        try:
            await self._end_process()
        finally:
            os.close(self._stderr)
            async with boundary(SandboxError, "removing the sandbox"):
                await self._at_end()

    async def _end_process(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_S):
                await self._process.wait()
        await _kill(self._process)

    def _expire(self, deadline_s: float) -> None:
        if self._ending is None:
            self._expired = True
            self._why = f"it reached its deadline of {deadline_s:g} s"
            self._ending = asyncio.create_task(self._end())

    async def _loss(self) -> SandboxError:
        if self._why:
            return self._lost(self._why)
        how = await self._how_it_ended()
        # If this process ended it in the meantime, the evidence proves nothing.
        now = asyncio.get_running_loop().time()
        if not self._why and (evidence := self._evidence.since_last(now)):
            return SandboxDestroyedError(
                "the sandbox was ended by what ran in it",
                why=f"{how}; {evidence}",
                fix="where tasks need more memory, raise `sandbox.local.memory`",
            )
        return self._lost(self._why or how)

    def _lost(self, why: str) -> SandboxError:
        return SandboxError(
            "the sandbox is lost",
            why=why,
            fix="if its memory ran out, run fewer episodes at a time",
            retryable=not self._expired,
        )

    async def _how_it_ended(self) -> str:
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                await self._process.wait()
        message = self._written().decode("utf-8", "replace").strip()
        return f"its process ended with code {self._process.returncode}. {message}".rstrip(" .")

    def _written(self) -> bytes:
        """Return the end of what the process has written to stderr."""
        if self._ending is not None:
            return b""
        try:
            return os.read(self._stderr, _PIPE_BYTES)[-500:]
        except OSError:
            return b""


class RecentEvidence:
    """Distinguish fresh evidence of how a sandbox ended from what was there long before, such as a
    single command that the kernel killed for its memory.
    """

    def __init__(self, evidence: Callable[[], str]) -> None:
        self._evidence = evidence
        self._seen: list[tuple[float, str]] = []
        """Each change with its time; of the changes older than `_RECENT_S`, only the last."""

    def look(self, now: float) -> None:
        """Record the current evidence while the sandbox lives."""
        found = self._evidence()
        if not self._seen or self._seen[-1][1] != found:
            self._seen.append((now, found))
        while len(self._seen) > 1 and self._seen[1][0] <= now - _RECENT_S:
            del self._seen[0]

    def since_last(self, now: float) -> str:
        """Return the current evidence if it is new; empty if it was there before."""
        found = self._evidence()
        before = [text for at, text in self._seen if at <= now - _RECENT_S]
        return found if not before or found != before[-1] else ""


async def _spawn(
    command: Sequence[str], *, env: Mapping[str, str], stderr: int
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=stderr,
        env=dict(env),
        cwd="/",
        # A terminal's interrupt must not reach it: this process ends sandboxes in order.
        start_new_session=True,
    )


async def _abandon(spawning: asyncio.Task[asyncio.subprocess.Process]) -> None:
    for spawned in await asyncio.gather(spawning, return_exceptions=True):
        if isinstance(spawned, asyncio.subprocess.Process):
            await _kill(spawned)


async def _kill(process: asyncio.subprocess.Process) -> None:
    # Kills the process if it still runs, and closes pipes that other processes still hold.
    # There is no public API for that.
    process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001
    await process.wait()
