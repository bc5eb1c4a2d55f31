"""The scene of a case of `conformance exec`: a client at a pod, and a proxy that breaks things."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rollout_dev.exec_clients.base import CommandResult, Runner
from rollout_dev.exec_clients.site import Site
from rollout_dev.faults.exec_proxy import ExecProxy
from swe_rollout.sandbox.base import MAX_OUTPUT_BYTES
from swe_rollout.sandbox.session.session import Session

_BUGS = (ValueError, KeyError, TypeError, IndexError, AttributeError, UnicodeError)
"""Exceptions of a client that could not handle its input: they say nothing about the fault."""


class Mark(StrEnum):
    """The verdict of a cell."""

    RIGHT = "right"
    WRONG = "wrong"
    NONE = "n/a"


@dataclass(frozen=True, slots=True)
class Cell:
    """One case of one client."""

    mark: Mark
    detail: str = ""
    """The client's behaviour, where it was not right."""


RIGHT = Cell(Mark.RIGHT)


def wrong(detail: str) -> Cell:
    """Make a cell for wrong behaviour."""
    return Cell(Mark.WRONG, detail[:160])


def none(detail: str) -> Cell:
    """Make a cell for a feature that a client does not have."""
    return Cell(Mark.NONE, detail)


def right_if(true: object, detail: str) -> Cell:
    """Make a right cell if `true`, else a wrong one with what was seen."""
    return RIGHT if true else wrong(detail)


@dataclass(frozen=True, slots=True)
class Trial:
    """A finished command: its result or its error."""

    took_s: float
    outcome: CommandResult | None
    error: BaseException | None

    def __str__(self) -> str:
        if self.outcome is None:
            return f"{type(self.error).__name__}: {self.error} after {self.took_s:.0f} s"
        found = self.outcome
        code = "no exit code" if found.exit_code is None else f"exit code {found.exit_code}"
        late = ", timed out" if found.timed_out else ""
        return f"{code}{late}, stdout {_short(found.stdout)} after {self.took_s:.0f} s"

    @property
    def reported(self) -> bool:
        """Whether an error says that something other than the command failed."""
        return self.error is not None and not isinstance(self.error, _BUGS)

    @property
    def gave_up(self) -> bool:
        """Whether it stopped waiting, and reported it."""
        return self.reported or (self.outcome is not None and self.outcome.timed_out)

    def printed(self, stdout: bytes) -> bool:
        """Whether it succeeded with exactly this output; if capped, with its first bytes."""
        found = self.outcome
        if found is None or found.timed_out or found.exit_code not in (0, None):
            return False
        capped = found.stdout_bytes == len(stdout) and len(found.stdout) == MAX_OUTPUT_BYTES
        return found.stdout == (stdout[:MAX_OUTPUT_BYTES] if capped else stdout)


@dataclass(frozen=True, slots=True)
class Scene:
    """One client at one pod."""

    runner: Runner
    is_ours: bool
    site: Site
    pod: str
    folder: str
    """A path in the pod: the prefix of file names of this case."""
    control: Session
    """A direct session into the pod, to inspect it."""
    proxy: ExecProxy | None

    async def sh(
        self, script: str, *arguments: str, stdin: bytes = b"", timeout_s: float = 30.0
    ) -> Trial:
        """Run a script of POSIX sh."""
        argv = ("/bin/sh", "-c", script, "sh", *arguments)
        return await self.run(argv, stdin=stdin, timeout_s=timeout_s)

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 30.0
    ) -> Trial:
        """Run a program."""
        started = time.monotonic()
        running = self.runner.run(argv, stdin=stdin, timeout_s=timeout_s)
        (found,) = await asyncio.gather(running, return_exceptions=True)
        took_s = time.monotonic() - started
        if isinstance(found, CommandResult):
            return Trial(took_s, found, None)
        return Trial(took_s, None, found)

    async def while_running(
        self,
        script: str,
        *arguments: str,
        then: Callable[[ExecProxy], Awaitable[None]],
        timeout_s: float = 30.0,
    ) -> Trial:
        """Run a script, and call `then` a second after its start."""
        task = asyncio.create_task(self.sh(script, *arguments, timeout_s=timeout_s))
        try:
            await asyncio.sleep(1.0)
            await then(self.faults)
            return await task
        finally:
            task.cancel()

    async def look(self, script: str, *arguments: str) -> str:
        """Run a script past the client and return its output."""
        argv = ("/bin/sh", "-c", script, "sh", *arguments)
        return (await self.control.exec(argv)).stdout.decode(errors="replace")

    @property
    def faults(self) -> ExecProxy:
        """The proxy between the client and the API server."""
        if self.proxy is None:
            raise RuntimeError("the case does not need a proxy")
        return self.proxy


def _short(data: bytes) -> str:
    return repr(data) if len(data) <= 40 else f"of {len(data)} bytes"  # noqa: PLR2004
