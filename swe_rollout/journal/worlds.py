"""The world of an agent that has ended: everything that it asks for was answered before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

from swe_rollout.journal.errors import DivergedError
from swe_rollout.journal.tape import Tape
from swe_rollout.sandbox.base import MAX_OUTPUT_BYTES, ExecResult, Sandbox

_ENDED = "the agent had ended, and asked for something new"


class NoSandbox(Sandbox):
    """Stands where a sandbox was. Whoever asks it for something new has diverged."""

    def __init__(self, workdir: str) -> None:
        self._workdir = workdir

    @property
    def workdir(self) -> str:
        return self._workdir

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        timeout_s: float = 120.0,
        max_output: int = MAX_OUTPUT_BYTES,
    ) -> ExecResult:
        del command, cwd, env, stdin, timeout_s, max_output
        _refuse()

    async def read_file(self, path: str, *, max_bytes: int = 64 << 20) -> bytes:
        del path, max_bytes
        _refuse()

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        del path, data, mode
        _refuse()

    async def end_processes(self) -> None:
        _refuse()

    async def close(self) -> None:
        """Do nothing: there is nothing."""


class NoTurns:
    """Comes before turns and calls of an agent that has ended: there are none."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape

    async def before_turn(self) -> None:
        raise self._tape.diverge(_ENDED)

    async def before_call(self) -> None:
        raise self._tape.diverge(_ENDED)


class Unwritten:
    """Comes before turns and calls of an attempt that nobody writes down."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape

    async def before_turn(self) -> None:
        self._tape.take_noted()

    async def before_call(self) -> None:
        """Do nothing: nothing has to be durable."""


def _refuse() -> NoReturn:
    raise DivergedError(_ENDED)
