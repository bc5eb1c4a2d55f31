"""A channel for runners without streams, which only run a shell script and return its output.

Next to the supervisor, a pump in the sandbox moves numbered pieces between files and the
supervisor's two pipes. Each call puts one piece there or takes some, as base64 on a command line or
in the output. Taking or putting a piece twice is harmless (duplicates are dropped), so a failed
call is simply repeated. The image needs `base64`, `dd` and `mkfifo`.
"""

from __future__ import annotations

import asyncio
import base64
import posixpath
import secrets
import shlex
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, Self, TypeVar

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from swe_rollout.errors import SandboxDestroyedError, SandboxError, boundary
from swe_rollout.sandbox.script import read_script
from swe_rollout.sandbox.session.channel import StreamLostError

PIECE_BYTES: Final = 64 << 10
"""As base64 it still fits one argument (128 KiB); also the capacity of a pipe."""
_AHEAD: Final = 8
"""The most pieces that may wait in the sandbox, in each direction."""
_TRIES: Final = 5
_FIRST_PAUSE_S: Final = 0.2
_WAIT_S: Final = 20
"""The longest time that a call waits in the sandbox."""
_CALL_S: Final = 30
"""How much longer a call may take than it waits in the sandbox."""
_FULL: Final = 75
_GONE: Final = 71
_QUICK_S: Final = 2
"""How long a call polls a hundred times a second, before it polls ten times a second."""
_LOOKS: Final = _QUICK_S * 100 + (_WAIT_S - _QUICK_S) * 10
_Parsed = TypeVar("_Parsed")


@dataclass(frozen=True, slots=True)
class RunnerResult:
    """The result of a command that a runner executed."""

    exit_code: int
    text: str
    """The output of both streams."""


class Execute(Protocol):
    """Runs a script in the sandbox's shell."""

    async def __call__(self, script: str, *, timeout_s: float) -> RunnerResult:
        """Return the result.

        Raises StreamLostError when it is unknown, SandboxError when the sandbox is lost.
        """
        ...


@dataclass(frozen=True, slots=True)
class _Taken:
    """The pieces that a call has taken."""

    pieces: int
    data: bytes
    ended: bool


class ExecChannel:
    """A `Channel` to a supervisor over separate calls to a runner."""

    def __init__(
        self, execute: Execute, folder: str, at_end: Callable[[], Awaitable[None]]
    ) -> None:
        """Use `ExecChannel.start`."""
        self._execute = execute
        self._folder = folder
        self._at_end = at_end
        self._put = 0
        self._took = 0
        self._ending: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls,
        execute: Execute,
        command: Sequence[str],
        *,
        at_end: Callable[[], Awaitable[None]],
        root: str = "/tmp",  # noqa: S108 - a folder of our own is made in it
    ) -> Self:
        """Start a process that runs `command`; `at_end` ends the whole sandbox."""
        folder = posixpath.join(root, f".swe-rollout-stream.{secrets.token_hex(8)}")
        # `feed` looks for pieces before it waits: a poke that comes before it has opened the pipe
        # is lost.
        script = read_script(
            "stream_start",
            folder=shlex.quote(folder),
            root=shlex.quote(root),
            command=shlex.join(command),
            piece=PIECE_BYTES,
            ahead=_AHEAD,
        )
        result = await execute(script, timeout_s=60)
        if result.exit_code != 0:
            raise SandboxError(
                "the supervisor did not start",
                why=result.text.strip()[-500:] or f"exit code {result.exit_code}",
                fix=f"the image needs /bin/sh, mkfifo, dd, base64, and {root} to write to",
                retryable=False,
            )
        return cls(execute, folder, at_end)

    @property
    def ended(self) -> bool:
        """Whether `close` was called."""
        return self._ending is not None

    async def send(self, data: bytes) -> None:
        for start in range(0, len(data), PIECE_BYTES):
            piece = base64.b64encode(data[start : start + PIECE_BYTES]).decode()
            script = self._script(
                "stream_put", full=_FULL, looks=_WAIT_S * 100, number=self._put, data=piece
            )
            while not await self._run(script, _was_put):
                pass
            self._put += 1

    async def receive(self) -> bytes:
        while True:
            script = self._script(
                "stream_take", looks=_LOOKS, quick=_QUICK_S * 100, number=self._took
            )
            taken = await self._run(script, _taken)
            self._took += taken.pieces
            if taken.data or taken.ended:
                return taken.data

    async def close(self) -> None:
        """Close the sandbox, and finish even if the caller is cancelled."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._end())
        await asyncio.shield(self._ending)

    async def _end(self) -> None:
        async with boundary(SandboxError, "removing the sandbox"):
            await self._at_end()

    def _script(self, name: str, **values: object) -> str:
        folder = shlex.quote(self._folder)
        return read_script(name, folder=folder, gone=_GONE, ahead=_AHEAD, **values)

    async def _run(self, script: str, parse: Callable[[RunnerResult], _Parsed]) -> _Parsed:
        """Run a script and parse its result, repeating calls whose result can't be read."""

        async def attempt() -> _Parsed:
            return parse(await self._execute(script, timeout_s=_WAIT_S + _CALL_S))

        retrying = AsyncRetrying(
            retry=retry_if_exception_type(StreamLostError),
            stop=stop_after_attempt(_TRIES),
            wait=wait_exponential(multiplier=_FIRST_PAUSE_S),
            reraise=True,
        )
        return await retrying(attempt)


def _was_put(result: RunnerResult) -> bool:
    """Return False if the supervisor has not yet read the earlier pieces."""
    _check(result, (0, _FULL))
    return result.exit_code == 0


def _taken(result: RunnerResult) -> _Taken:
    _check(result, (0,))
    first, _, rest = result.text.partition("\n")
    try:
        pieces, size, *end = first.split()
        data = base64.b64decode("".join(rest.split()), validate=True)
        if len(data) == int(size):
            return _Taken(int(pieces), data, ended=bool(end))
    except ValueError as error:
        raise _unreadable(result) from error
    raise _unreadable(result)


def _check(result: RunnerResult, good: Sequence[int]) -> None:
    if result.exit_code == _GONE:
        # This script itself has just run there, so the container is alive.
        raise SandboxDestroyedError(
            "the sandbox was ended by what ran in it",
            why="its supervisor has ended, or its files were removed, in a container that goes on",
            fix="if its memory ran out, give it more, or run fewer episodes at a time",
        )
    if result.exit_code not in good:
        raise _unreadable(result)


def _unreadable(result: RunnerResult) -> StreamLostError:
    return StreamLostError(
        "the runner's output can't be read",
        why=f"exit code {result.exit_code}: {result.text[-200:]!r}",
        fix="look at the disk space of the sandbox",
    )
