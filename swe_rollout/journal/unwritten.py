"""Attempts that are not journaled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from swe_rollout.context import Attempt, JobContext
from swe_rollout.journal.base import Journal, Workplace
from swe_rollout.journal.fork_point import ForkPoint
from swe_rollout.journal.restoring import begin_from
from swe_rollout.journal.tape import DivergedError, Tape
from swe_rollout.journal.wrappers import Taped, Unwritten, playing_on
from swe_rollout.sandbox.repository import Patch


class UnwrittenFork(Journal):
    """Plays an attempt from a recorded turn without journaling it."""

    def __init__(self, fork: ForkPoint) -> None:
        self._fork = fork
        self._tape = Tape(fork.entries)

    async def begin(self, attempt: Attempt, context: JobContext) -> Workplace:
        with self._refusing():
            return await begin_from(self._fork, attempt, context)

    def _taped(self) -> Taped:
        return Taped(self._tape, Unwritten(self._tape))

    @contextmanager
    def playing(self) -> Iterator[None]:
        with self._refusing(), playing_on(self._tape, self._fork.header.seed):
            yield

    async def finish(self, place: Workplace) -> Patch:
        with self._refusing():
            self._tape.require_end()
        return await super().finish(place)

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """Turn divergence into an error of the job, because all forks would diverge."""
        try:
            yield
        except DivergedError as error:
            raise self._fork.refused(error) from error


def unjournaled(context: JobContext) -> Journal:
    """Return the journal for an attempt that is not journaled."""
    return Journal() if context.fork is None else UnwrittenFork(context.fork)
