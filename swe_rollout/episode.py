"""One episode, start to finish. Read this first.

A sandbox starts from the task's image; the agent works in it, turn by turn, on exact token ids;
only its diff leaves; a second, clean sandbox grades the diff with the task's own tests. Whatever
breaks is recorded as a failure with an owner, and earns no reward. A policy that destroys its own
sandbox is not a failure: what remains of its work is graded.
"""

from __future__ import annotations

from swe_rollout.agent.program import run_agent
from swe_rollout.context import Attempt, JobContext
from swe_rollout.errors import EpisodeError, InternalError, SandboxDestroyedError, boundary
from swe_rollout.events import Phase
from swe_rollout.journal.base import Journal
from swe_rollout.journal.unwritten import unjournaled
from swe_rollout.recorder import Recorder
from swe_rollout.sandbox.repository import Patch
from swe_rollout.types.trajectory import Trajectory


async def run_episode(
    attempt: Attempt, context: JobContext, journal: Journal | None = None
) -> Trajectory:
    """Play one attempt at an episode and return its record.

    With a journal, it continues from the journal's end and appends to it. Raises only errors that
    would stop every episode, DivergedError if this episode must start over, and TakenOverError if
    another process now owns it.
    """
    journal = journal or unjournaled(context)
    with Recorder(attempt, context) as record:
        try:
            async with boundary(InternalError, "the episode"):
                record.patch = await _play(attempt, context, record, journal)
                record.enter(Phase.GRADE)
                record.verdict = await context.grade(attempt, record.patch)
                if record.verdict is not None:
                    record.reward = await context.rewards.score(record.reward_input(record.verdict))
        except EpisodeError as error:
            record.fail(error)
        return record.trajectory()


async def _play(attempt: Attempt, context: JobContext, record: Recorder, journal: Journal) -> Patch:
    async with context.admitted(attempt.episode):
        record.enter(Phase.START)
        record.resumption = journal.resumption
        place = await journal.begin(attempt, context)
        record.resumption = journal.resumption
        try:
            record.enter(Phase.AGENT)
            record.agent = journal.agent_context(attempt, context, place, on_turn=record.turn)
            with journal.playing():
                record.stop_reason = await run_agent(context.program, record.agent)
            return await journal.finish(place)
        except SandboxDestroyedError as error:
            record.destroyed(error)
        finally:
            await place.sandbox.close()
    return await journal.salvage(attempt, context)
