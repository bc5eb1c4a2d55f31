"""The world of an agent that has ended: everything that it asks for was answered before."""

from __future__ import annotations

from swe_rollout.journal.errors import DivergedError
from swe_rollout.journal.tape import Tape
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.sandbox.wrapped import AbsentSandbox

_ENDED = "the agent had ended, and asked for something new"


def no_sandbox(workdir: str) -> Sandbox:
    """Return what stands where a sandbox was. Whoever asks it for something new has diverged."""
    return AbsentSandbox(workdir, lambda: DivergedError(_ENDED))


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
