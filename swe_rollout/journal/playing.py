"""Play an agent program on a tape: its engine, its sandbox, its tools and its marks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from swe_rollout.agent.context import AgentContext
from swe_rollout.agent.tools.marks import MARKS, Marks
from swe_rollout.context import Attempt, JobContext
from swe_rollout.journal.base import Workplace
from swe_rollout.journal.tape import Tape
from swe_rollout.journal.wrappers import Barriers, JournaledSandbox, journaled_parts
from swe_rollout.types.turn import Turn


def taped_context(
    attempt: Attempt,
    context: JobContext,
    place: Workplace,
    tape: Tape,
    world: Barriers,
    *,
    on_turn: Callable[[Turn], None],
) -> AgentContext:
    """Return the context of an attempt's agent, whose engine, sandbox and tools are on a tape."""

    def report(turn: Turn) -> None:
        # Turns of an earlier life say nothing of the engine, or of how fast it is.
        if not tape.is_replaying:
            on_turn(turn)

    agent = context.agent_context(
        attempt,
        JournaledSandbox(place.sandbox, tape, world),
        on_turn=report,
        parts=journaled_parts(context.agent, tape, world),
    )
    tape.clock = agent.clock
    return agent


@contextmanager
def playing_on(tape: Tape, seed: str) -> Iterator[None]:
    """Run an agent program on a tape inside the block; its marks follow from the seed."""
    token = MARKS.set(Marks(seed))
    try:
        yield
    except Exception:
        # The program may have made something else of it.
        if tape.diverged is not None:
            raise tape.diverged from None
        raise
    finally:
        MARKS.reset(token)
