"""One episode, start to finish. Read this first.

A sandbox starts from the task's image; the agent works in it, turn by turn, on exact token ids;
its diff alone leaves; a second, clean sandbox grades the diff with the task's own tests.
Whatever breaks is recorded as a failure with an owner, and earns no reward.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from swe_rollout.agent.loop import AgentLoop
from swe_rollout.errors import EpisodeError, GraderError, InternalError, SandboxError, boundary
from swe_rollout.progress import Phase
from swe_rollout.recorder import Recorder
from swe_rollout.sandbox import repository
from swe_rollout.sandbox.base import Role, Sandbox, SandboxRequest

if TYPE_CHECKING:
    from swe_rollout.grading.grader import Grader
    from swe_rollout.rollout import Attempt, Rollout
    from swe_rollout.trajectory import Trajectory


async def run_episode(attempt: Attempt, rollout: Rollout) -> Trajectory:
    """The record of one try at an episode. Only cancellation is raised."""
    record = Recorder(attempt, rollout)
    try:
        async with boundary(InternalError, "the episode"):
            await _act(attempt, rollout, record)
            if rollout.grader is not None:
                await _grade(attempt, rollout.grader, record)
    except EpisodeError as error:
        record.failed(error)
    return record.trajectory()


async def _act(attempt: Attempt, rollout: Rollout, record: Recorder) -> None:
    record.enter(Phase.START)
    sandbox = await _start(attempt, rollout)
    try:
        base = await repository.prepare(sandbox, attempt.instance)
        record.enter(Phase.AGENT)
        record.loop = AgentLoop(
            instance=attempt.instance,
            episode=attempt.episode,
            engine=rollout.engine,
            renderer=rollout.renderer,
            toolbox=rollout.toolbox,
            sandbox=sandbox,
            sampling=rollout.sampling_for(attempt.episode),
            limits=rollout.limits,
            prompts=rollout.prompts,
            on_turn=record.turn,
        )
        record.stop_reason = await record.loop.run()
        record.patch = await repository.diff(sandbox, base)
    finally:
        await sandbox.close()


async def _start(attempt: Attempt, rollout: Rollout) -> Sandbox:
    async with boundary(SandboxError, "starting the sandbox"):
        return await rollout.sandboxes.start(
            SandboxRequest(
                episode=attempt.episode,
                role=Role.AGENT,
                image=attempt.instance.image,
                workdir=attempt.instance.workdir,
                attempt=attempt.number,
                deadline_s=rollout.limits.episode_seconds + 600,
            )
        )


async def _grade(attempt: Attempt, grader: Grader, record: Recorder) -> None:
    record.enter(Phase.GRADE)
    async with boundary(GraderError, "grading"):
        record.verdict = await grader.grade(
            attempt.instance, record.patch, episode=attempt.episode, attempt=attempt.number
        )
