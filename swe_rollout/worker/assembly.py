"""Assemble what the episodes of a job share: engine, renderer, tools, sandboxes, grader."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import astuple, replace

from swe_rollout.agent.call_text import stands_in_words
from swe_rollout.agent.first_prompt import find_long_prompts
from swe_rollout.agent.off_loop import off_loop
from swe_rollout.agent.parts import AgentParts
from swe_rollout.agent.presets.rounds import Behind, Preset
from swe_rollout.agent.program import AGENTS, Agent, loop
from swe_rollout.agent.prompts import Prompts, described, fill
from swe_rollout.agent.renderer import Renderer
from swe_rollout.agent.tools import toolbox
from swe_rollout.agent.tools.base import Toolbox, ToolSpec
from swe_rollout.agent.tools.declared import require_no_controls
from swe_rollout.context import JobContext
from swe_rollout.engine.base import TokenEngine
from swe_rollout.engine.pool.admission import Waiting
from swe_rollout.engine.pool.pool import CacheShare
from swe_rollout.errors import PrerequisiteError
from swe_rollout.events import CacheAwaited, Subscriber
from swe_rollout.grading.grader import Grader
from swe_rollout.grading.rewards import Rewards
from swe_rollout.grading.run import LogKeeper
from swe_rollout.sandbox.base import SandboxProvider
from swe_rollout.spec.agent import AgentSpec
from swe_rollout.spec.grading import GradingSpec
from swe_rollout.spec.job import RolloutJob, RolloutJobSpec
from swe_rollout.spec.limits import Limits
from swe_rollout.spec.policy import ReplaySpec, ScriptedPolicy
from swe_rollout.tokens.replay import ExpertShape, Recording
from swe_rollout.types.instance import Instance
from swe_rollout.worker.engines import EngineSetup, OpenEngine, open_engine
from swe_rollout.worker.forks import find_fork_point
from swe_rollout.worker.harnesses import program_of
from swe_rollout.worker.publishing import PublishingSandboxes, publishing_engine


async def assemble(
    job: RolloutJob,
    instances: Sequence[Instance],
    *,
    sandboxes: SandboxProvider,
    publish: Subscriber,
    on_note: Callable[[str], None],
    stack: AsyncExitStack,
    engine: TokenEngine | None = None,
    logs: LogKeeper | None = None,
    workers: int = 1,
) -> JobContext:
    """Assemble the shared parts of a job around its sandboxes; `stack` closes them.

    `engine` replaces the one that `spec.policy` names, and is not closed. `logs` keeps test output;
    `publish` receives every event; `workers` processes play the job. Raises PrerequisiteError if
    a part is missing, ExtensionError if an extension can't be created, UnreachableError if the
    engine or a reward's judge does not respond, UsageError if `spec.fork` names a turn that can't
    be forked or no task's prompt fits into the context.
    """
    spec = job.spec
    most, share = spec.limits.max_new_tokens, _cache_share(spec, workers, publish)
    setup = EngineSetup(spec.policy, spec.agent, instances, stack, engine, most, share)
    opened = await open_engine(setup)
    tools, program = toolbox(spec.agent.tools), AGENTS.load(*program_of(spec.agent))
    if opened.renderer is not None:
        _require_template(opened.renderer, spec, tools, program)
    rewards = await _rewards(spec.grading, stack)
    sandboxes = PublishingSandboxes(sandboxes, publish)
    parts = replace(
        _agent_parts(spec, opened, tools, on_note),
        engine=publishing_engine(opened.engine, publish, opened.policy_of),
    )
    await _note_doubts(spec.policy.scripted, program, parts, instances, on_note)
    context = JobContext(
        agent=parts,
        program=program,
        sampling=spec.sampling,
        sandboxes=sandboxes,
        grader=_grader(spec.grading, instances, sandboxes, logs),
        rewards=rewards,
        retry=spec.retry,
        publish=publish,
        policy=opened.policy_of,
        spec_digest=job.digest,
        extensions=spec.extensions,
        gate=opened.gate,
    )
    fork = await find_fork_point(spec.fork, job, context, instances) if spec.fork else None
    return replace(context, fork=fork)


def _cache_share(spec: RolloutJobSpec, workers: int, publish: Subscriber) -> CacheShare:
    def changed(waiting: Waiting) -> None:
        publish(CacheAwaited(*astuple(waiting)))

    return CacheShare(workers, spec.limits.context_tokens, changed)


def _agent_parts(
    spec: RolloutJobSpec, opened: OpenEngine, tools: Toolbox, on_note: Callable[[str], None]
) -> AgentParts:
    return AgentParts(
        engine=opened.engine,
        renderer=opened.renderer,
        toolbox=tools,
        prompts=prompts_of(spec.agent, tools.specs),
        limits=_within(spec.limits, opened.info.context_tokens, on_note),
        recording=_recording(spec.policy.sglang.record) if spec.policy.sglang else None,
        chat_format=None if opened.renderer else _chat_format(spec.agent),
    )


async def _note_doubts(
    scripted: ScriptedPolicy | None,
    program: Agent,
    parts: AgentParts,
    instances: Sequence[Instance],
    on_note: Callable[[str], None],
) -> None:
    if program is loop and scripted is not None:
        _note_unknown_tools(scripted, parts.toolbox, on_note)
    # Other agent programs choose their own first messages.
    if parts.renderer is not None and (program is loop or isinstance(program, Preset)):
        await _note_long_prompts(parts, instances, on_note)


def _note_unknown_tools(
    policy: ScriptedPolicy, tools: Toolbox, on_note: Callable[[str], None]
) -> None:
    known = {tool.name for tool in tools.specs}
    scripts = (policy.turns or (), *policy.tasks.values())
    called = dict.fromkeys(name for turns in scripts for turn in turns for name in turn.call)
    if unknown := [name for name in called if name not in known]:
        on_note(
            f"warning: the script calls {', '.join(unknown)}, and the agent has no such tool: it "
            f"gets an error (it has {', '.join(sorted(known))})"
        )


async def _note_long_prompts(
    parts: AgentParts, instances: Sequence[Instance], on_note: Callable[[str], None]
) -> None:
    long = await off_loop(find_long_prompts, parts, instances)
    if long.tokens:
        on_note(f"warning: {long}")


async def _rewards(spec: GradingSpec, stack: AsyncExitStack) -> Rewards:
    rewards = Rewards(spec.reward)
    stack.push_async_callback(rewards.aclose)
    if spec.enabled:
        await rewards.check()
    return rewards


def _require_template(
    renderer: Renderer, spec: RolloutJobSpec, tools: Toolbox, program: Agent
) -> None:
    """Refuse a job that the model's chat template can't serve."""
    require_no_controls(tools.specs, renderer.controls.values())
    if spec.limits.compact_at is not None:
        _require_messages(renderer)
    if isinstance(program, Preset):
        _require_preset(program, renderer, spec.agent)


def _chat_format(agent: AgentSpec) -> str | None:
    """Return the format of calls written in message text; None for the API's own calls."""
    form = agent.tool_format
    if form == "auto":
        return None
    if not stands_in_words(form):
        raise PrerequisiteError(
            f"the call format {form} can't be used over a chat API",
            why="it does not say how its calls are written, so the prompt can't show one",
            fix="give it a method `write`, or leave spec.agent.toolFormat out: calls are then the "
            "API's own",
        )
    return form


def _require_messages(renderer: Renderer) -> None:
    """Refuse compaction where the request for a summary can't be appended to the log."""
    if why := renderer.message_refusal(after_calls=True):
        raise PrerequisiteError(
            "limits.compactAt can't be used with this model's chat template",
            why=f"a user message can't be appended exactly: {why}",
            fix="remove limits.compactAt",
        )


def _require_preset(preset: Preset, renderer: Renderer, agent: AgentSpec) -> None:
    """Refuse a preset whose messages can't be appended to the log."""
    for place in preset.messages:
        if why := renderer.message_refusal(after_calls=place is Behind.CALLS):
            raise PrerequisiteError(
                f"the agent {agent.use} can't be used with this model's chat template",
                why=f"it writes messages behind {place.value}, which can't be appended exactly: "
                f"{why}",
                fix="set spec.agent.toolFormat to a format that stands in the words of a turn, "
                "such as function_xml, or take another agent",
            )


def _grader(
    spec: GradingSpec,
    instances: Sequence[Instance],
    sandboxes: SandboxProvider,
    logs: LogKeeper | None,
) -> Grader | None:
    if not spec.enabled:
        return None
    grader = Grader(
        sandboxes,
        timeout_s=spec.timeout_seconds,
        log_parser=spec.log_parser,
        integrity=spec.integrity,
        unproven=spec.unproven,
        partial=spec.credits_single_tests,
        logs=logs,
    )
    grader.site.require(instances)
    return grader


def _within(limits: Limits, context_tokens: int | None, on_note: Callable[[str], None]) -> Limits:
    """Return the limits, with the context capped at the engine's."""
    if context_tokens is None or limits.context_tokens <= context_tokens:
        return limits
    on_note(f"the engine's context of {context_tokens} tokens is the limit")
    return limits.model_copy(update={"context_tokens": context_tokens})


def _recording(spec: ReplaySpec) -> Recording | None:
    experts = spec.routed_experts
    wanted = Recording(
        experts=ExpertShape(experts.layers, experts.topk) if experts else None,
        sampling_mask=spec.sampling_mask,
        prompt_logprobs=spec.prompt_logprobs,
    )
    return wanted if wanted != Recording() else None


def prompts_of(agent: AgentSpec, tools: Sequence[ToolSpec]) -> Prompts:
    """Return the prompts of a job's agent for `tools`.

    Raises PrerequisiteError for a prompts file that was not read.
    """
    if agent.prompts_file is not None:
        raise PrerequisiteError(
            f"the prompts in {agent.prompts_file} are not here",
            why="the file is read where the job file is, not by workers",
            fix="launch the job by `swe-rollout launch`, or write the prompts into "
            "spec.agent.systemPrompt and spec.agent.instancePrompt",
        )
    default = Prompts()
    values = {"tools": described(tools), **agent.prompt_variables}
    return Prompts(
        # Nothing from the dataset row goes in here: the system message is trusted.
        system=fill(default.system if agent.system_prompt is None else agent.system_prompt, values),
        instance=default.instance if agent.instance_prompt is None else agent.instance_prompt,
        values=values,
    )
