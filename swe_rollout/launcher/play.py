"""Play plain prompts: episodes without a repository, sandbox or grader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from swe_rollout.agent.program import run_agent
from swe_rollout.agent.prompts import MessageRole, Prompts, messages_of
from swe_rollout.agent.tools.base import ToolError
from swe_rollout.context import Attempt
from swe_rollout.errors import EpisodeError, InternalError, UsageError, boundary, gather_all
from swe_rollout.events import Events, Phase
from swe_rollout.launcher.logged_progress import log_progress
from swe_rollout.launcher.sync import run_sync
from swe_rollout.recorder import Recorder
from swe_rollout.sandbox.base import Sandbox, SandboxProvider
from swe_rollout.sandbox.wrapped import AbsentSandbox
from swe_rollout.spec.load import parse_spec
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Instance
from swe_rollout.worker.assembly import assemble

if TYPE_CHECKING:
    from swe_rollout.context import JobContext
    from swe_rollout.sandbox.base import SandboxRequest
    from swe_rollout.spec.agent import AgentSpec
    from swe_rollout.spec.job import RolloutJob
    from swe_rollout.types.trajectory import Trajectory

log = structlog.get_logger()


def play(
    prompts: Sequence[object],
    *,
    spec: Mapping[str, object],
    concurrency: int = 4,
    name: str = "prompts",
) -> list[Trajectory]:
    """Play one episode for each prompt, `concurrency` at a time, and return their records in order.

    A prompt is a text, a list of messages, or an object with `content`, `prompt` or `messages`.
    `spec` needs `policy` and may have `agent`, `sampling` and `limits`, as in a job file's `spec:`.
    Tools that need a sandbox return an error to the policy. Errors of an episode are in its
    record's `failure`; nothing is stored, graded or retried. Raises SpecError, UsageError for a
    prompt that can't be read, and any error that would stop every episode.

    play(["What is 6 * 7?"], spec={"policy": {"sglang": {"url": "http://…"}}}, concurrency=8)
    """
    if concurrency < 1:
        raise UsageError("concurrency must be at least 1", fix="leave it out, or raise it")
    if isinstance(prompts, str | Mapping):
        raise UsageError(
            "prompts are no list",
            why=f"one {type(prompts).__name__} was given, and each prompt is an item",
            fix='put it into a list: play(["…"], spec=…)',
        )
    job = _job(spec, name)
    tasks = [_task(prompt, job, index) for index, prompt in enumerate(prompts)]
    return run_sync(_play(job, tasks, concurrency)) if tasks else []


def _job(spec: Mapping[str, object], name: str) -> RolloutJob:
    """Return the job for a batch of prompts, without tasks of its own."""
    known = {"policy", "agent", "sampling", "limits"}
    if unknown := sorted(spec.keys() - known):
        raise UsageError(
            f"{unknown[0]} has no meaning for plain prompts",
            fix=f"give {', '.join(sorted(known))} only, or make a job: RolloutJob.from_rows",
        )
    ours = {"dataset": {"source": {"use": "prompts"}}, "grading": {"enabled": False}}
    return parse_spec({**spec, **ours}, name=name, source="play")


def _task(prompt: object, job: RolloutJob, index: int) -> tuple[Attempt, Prompts]:
    """Return the attempt for a prompt, and the prompts that present it."""
    agent = job.spec.agent
    first = messages_of(prompt, system=agent.system_prompt or "")
    system = "".join(each.content for each in first if each.role is MessageRole.SYSTEM)
    asked = "\n\n".join(each.content for each in first if each.role is MessageRole.USER)
    instance = Instance(instance_id=f"prompt-{index:06}", problem_statement=asked, image="")
    episode = EpisodeId(job.metadata.name, instance.instance_id, 0)
    return Attempt(episode, instance, 1), Prompts(system, _template(agent))


def _template(agent: AgentSpec) -> str:
    """Return the instance prompt, ignoring a preset's own, which is about a repository."""
    own = "instance_prompt" in agent.model_fields_set and agent.instance_prompt
    return own or "{problem_statement}"


async def _play(
    job: RolloutJob, tasks: Sequence[tuple[Attempt, Prompts]], concurrency: int
) -> list[Trajectory]:
    found: dict[int, Trajectory] = {}
    async with AsyncExitStack() as stack:
        context = await assemble(
            job,
            [attempt.instance for attempt, _ in tasks],
            sandboxes=_NoSandboxes(),
            publish=Events(log_progress),
            on_note=lambda text: log.info("play_noted", note=text),
            stack=stack,
        )
        left = iter(enumerate(tasks))

        async def work(left: Iterator[tuple[int, tuple[Attempt, Prompts]]]) -> None:
            for index, (attempt, prompts) in left:
                filled = replace(prompts, values=context.agent.prompts.values)
                agent = replace(context.agent, prompts=filled)
                found[index] = await _episode(attempt, replace(context, agent=agent))

        await gather_all(work(left) for _ in range(min(concurrency, len(tasks))))
    return [found[index] for index in range(len(tasks))]


async def _episode(attempt: Attempt, context: JobContext) -> Trajectory:
    with Recorder(attempt, context) as record:
        try:
            async with boundary(InternalError, "the episode"):
                record.enter(Phase.AGENT)
                record.agent = context.agent_context(attempt, _no_sandbox(), on_turn=record.turn)
                record.stop_reason = await run_agent(context.program, record.agent)
        except EpisodeError as error:
            record.fail(error)
        finally:
            context.agent.engine.release(attempt.episode)
        return record.trajectory()


def _no_sandbox() -> Sandbox:
    """Return a sandbox that refuses every command with an error that the policy reads."""
    return AbsentSandbox(
        "/", lambda: ToolError("there is no sandbox here; answer without this tool")
    )


class _NoSandboxes(SandboxProvider):
    """Starts no sandboxes."""

    async def start(self, request: SandboxRequest) -> Sandbox:
        del request
        return _no_sandbox()
