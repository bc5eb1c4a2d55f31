"""PolicyTurns: take one turn of an agent, from the request to its parsed calls, and run the calls.

Used by `context`, which decides when a turn may be taken.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import TypeVar

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    RetryError,
    retry_if_result,
    stop_after_attempt,
    wait_exponential,
)

from swe_rollout.agent.branches import EpisodeState, OpenBranch
from swe_rollout.agent.first_prompt import PromptTooLongError
from swe_rollout.agent.parts import AgentParts
from swe_rollout.agent.sampled_turn import SampledTurn, TurnBuilder, read_sampled
from swe_rollout.agent.tools.base import Delegate, ToolContext, cut_middle
from swe_rollout.engine.base import GenerateRequest
from swe_rollout.engine.errors import ContextOverflowError
from swe_rollout.errors import EngineError
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.spec.limits import CutTurns
from swe_rollout.spec.policy import Sampling
from swe_rollout.tokens.log import SamplingUsed, TokenLog
from swe_rollout.types.deadline import Deadline
from swe_rollout.types.episode import EpisodeId, StopReason
from swe_rollout.types.turn import CallStatus, FinishReason, Generation, Observation, ToolCall, Turn

_T = TypeVar("_T")
_MIN_TOOL_S = 0.1
MAX_ABORTS_PER_TURN = 16
"""Maximum continuations of one turn; more aborts are a failure of the engine."""
_BACKOFF = wait_exponential(multiplier=0.05, max=5.0)


class PolicyTurns:
    """Takes the turns of one agent, within the limits of the episode."""

    def __init__(
        self, parts: AgentParts, episode: EpisodeId, sampling: Sampling, state: EpisodeState
    ) -> None:
        self._parts = parts
        self._episode = episode
        self._sampling = sampling
        self._state = state

    async def take(
        self, branch: OpenBranch, results: Sequence[str], message: str
    ) -> tuple[SampledTurn, TurnBuilder | None]:
        """Append the delta after the last turn and sample the next, unless a limit is reached.

        Return the sampled turn and its builder, which is None if nothing was sampled.
        """
        index = len(self._state.turns)
        delta = await branch.delta(self._parts, results, message) if branch.has_turns else None
        if self._room(branch, len(delta.ids) if delta else 0) < 1:
            limit = self._parts.limits.context_tokens
            why = f"it has {len(branch.log)} tokens, and the limit is {limit}"
            return SampledTurn(stop=self._overflow(branch, why)), None
        if self._state.deadline.expired:
            return SampledTurn(stop=StopReason.TIME_LIMIT), None
        if delta:
            branch.append(delta, turn=index)
        turn = TurnBuilder(index, branch.log.request(), branch.index, message)
        try:
            sampled = await self._play(branch, turn)
        finally:
            # Sampled tokens stay in the record, whatever happened after them.
            if turn.ids:
                turn.text = turn.text or self._parts.tokens.renderer.decode(turn.ids)
                self._state.turns.append(turn.build())
                branch.has_turns = True
        if sampled.text != turn.text:
            sampled = replace(sampled, text=turn.text)
        return sampled, turn if turn.ids else None

    async def run(
        self,
        turn: TurnBuilder,
        calls: Sequence[ToolCall],
        sandbox: Sandbox,
        delegate: Delegate | None = None,
    ) -> StopReason | None:
        """Run calls of a turn in order; `delegate` is for tools that start sub-agents."""
        began = self._state.deadline.now()
        try:
            for call in calls:
                if self._state.deadline.expired:
                    return StopReason.TIME_LIMIT
                turn.observations.append(await self._observe(call, sandbox, delegate))
                if call.status is CallStatus.OK and self._parts.toolbox.ends_episode(call):
                    return StopReason.SUBMITTED
        finally:
            turn.tools_s += self._state.deadline.now() - began
        return None

    def stuck(self, turns: Sequence[Turn]) -> StopReason | None:
        """Return a stop reason if no call of the last turns parsed, or all were the same."""
        limits = self._parts.limits
        ends = turns[-limits.format_errors :]
        if len(ends) == limits.format_errors and all(map(_all_failed, ends)):
            return StopReason.FORMAT_ERRORS
        if limits.repeated_turns is None:
            return None
        ends = turns[-limits.repeated_turns :]
        repeats = all(turn.tool_calls == turns[-1].tool_calls for turn in ends)
        return StopReason.REPEATED if repeats and len(ends) == limits.repeated_turns else None

    def _overflow(self, branch: OpenBranch, why: str) -> StopReason:
        """Return the stop reason for a request that does not fit.

        Raises PromptTooLongError if nothing was sampled in the episode yet.
        """
        if branch.index == 0 and not (self._state.turns or branch.log.sampled):
            raise PromptTooLongError(why)
        return StopReason.CONTEXT_FULL

    def _room(self, branch: OpenBranch, more: int = 0) -> int:
        # Engines refuse a request that could fill the context to its last token.
        return self._parts.limits.context_tokens - len(branch.log) - more - 1

    async def _play(self, branch: OpenBranch, turn: TurnBuilder) -> SampledTurn:
        if (stop := await self._sample(branch, turn)) is not None:
            return SampledTurn(stop=stop)
        read = await read_sampled(
            self._parts.tokens.renderer,
            turn,
            tools=self._parts.toolbox.specs,
            opens_reasoning=branch.opens_reasoning,
        )
        turn.text, turn.calls = read.text, read.calls
        branch.follow(read.calls, reasoning_is_open=read.reasoning_is_open)
        return read

    async def _sample(self, branch: OpenBranch, turn: TurnBuilder) -> StopReason | None:
        limits, sampling = self._parts.limits, sampling_of(self._sampling, branch)
        sampler = TurnSampler(self._parts, self._episode, sampling, branch.log)
        budget = min(limits.max_new_tokens, self._room(branch))
        sampled = sampler.sample(turn, budget, self._state.deadline)
        if (stop := await self._timed(sampled, branch, turn)) is not None:
            return stop
        if turn.finish_reason is FinishReason.STOP:
            return None
        if not (turn.ids or self._state.turns or branch.index):
            raise EngineError(
                "the engine sampled nothing",
                why=f"it ended the episode's first call, after {len(branch.log)} tokens, as full",
                fix="let its info() return the context_tokens that it has",
            )
        return self._stop_of_cut(len(turn.ids))

    async def _timed(
        self, call: Awaitable[_T], branch: OpenBranch, turn: TurnBuilder
    ) -> _T | StopReason:
        """Await a call of the engine; return why it ends the agent if it does not fit or end."""
        deadline = self._state.deadline
        began = deadline.now()
        try:
            async with deadline.enforced() as clock:
                return await call
        except TimeoutError:
            if not clock.expired():
                raise
            return StopReason.TIME_LIMIT
        except ContextOverflowError as error:
            # The engine did not report its context length beforehand.
            return self._overflow(branch, str(error))
        finally:
            turn.engine_s = deadline.now() - began

    def _stop_of_cut(self, tokens: int) -> StopReason | None:
        """Return why a turn that was cut after `tokens` ends the agent; None if it may go on.

        It may contain half a call, so nothing in it is parsed or run.
        """
        limits = self._parts.limits
        if tokens < limits.max_new_tokens:
            return StopReason.CONTEXT_FULL
        return StopReason.TOKEN_LIMIT if limits.cut_turns is CutTurns.END else None

    async def _observe(
        self, call: ToolCall, sandbox: Sandbox, delegate: Delegate | None
    ) -> Observation:
        limits = self._parts.limits
        if call.status is not CallStatus.OK:
            return Observation(cut_middle(call.problem, limits.tool_output_bytes))
        remaining_s = max(_MIN_TOOL_S, self._state.deadline.remaining_s)
        bounds = ToolContext(
            timeout_s=min(limits.tool_seconds, remaining_s),
            output_bytes=limits.tool_output_bytes,
            state=self._state.tools,
            remaining_s=remaining_s,
            delegate=delegate,
        )
        return await self._parts.toolbox.run(call, sandbox, bounds)


def sampling_of(sampling: Sampling, branch: OpenBranch) -> Sampling:
    """Return the sampling of a branch, so that branches with equal prompts sample differently."""
    if sampling.seed is None or not branch.index:
        return sampling
    return sampling.model_copy(update={"seed": (sampling.seed + branch.index) & 0x7FFFFFFF})


def _all_failed(turn: Turn) -> bool:
    statuses = [call.status for call in turn.tool_calls]
    return bool(statuses) and CallStatus.OK not in statuses


def _wait(state: RetryCallState) -> float:
    """Return the seconds before a retry: 0 if the aborted call sampled anything."""
    generation = state.outcome.result() if state.outcome else None
    return 0.0 if generation and generation.token_ids else _BACKOFF(state)


class TurnSampler:
    """Samples the turns of one branch."""

    def __init__(
        self, parts: AgentParts, episode: EpisodeId, sampling: Sampling, log: TokenLog
    ) -> None:
        self._parts = parts
        self._episode = episode
        self._sampling = sampling
        self._used = SamplingUsed(
            sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p
        )
        self._log = log

    async def sample(self, turn: TurnBuilder, budget: int, deadline: Deadline) -> None:
        """Sample one turn of at most `budget` tokens; an aborted one continues where it stopped.

        Raises EngineError if the engine fails, or keeps aborting.
        """
        await self._add(turn, budget, deadline)
        if turn.finish_reason is not FinishReason.ABORT:
            return
        going_on = AsyncRetrying(
            retry=retry_if_result(lambda _: turn.finish_reason is FinishReason.ABORT),
            stop=stop_after_attempt(MAX_ABORTS_PER_TURN - 1),
            wait=_wait,
        )
        try:
            await going_on(self._add, turn, budget, deadline)
        except RetryError as error:
            raise EngineError(
                f"one turn was aborted {MAX_ABORTS_PER_TURN} times",
                fix="look into the engine's log",
            ) from error

    async def _add(self, turn: TurnBuilder, budget: int, deadline: Deadline) -> Generation:
        """Add the tokens that one engine call samples within the remaining budget."""
        generation = await self._generate(turn, budget - len(turn.ids), deadline)
        self._append(turn, generation)
        if turn.finish_reason is FinishReason.ABORT and len(turn.ids) >= budget:
            turn.finish_reason = FinishReason.LENGTH
        return generation

    async def _generate(self, turn: TurnBuilder, budget: int, deadline: Deadline) -> Generation:
        log, recording = self._log, self._parts.recording
        replay = log.replay_request(recording) if recording else None
        generation = await self._parts.tokens.engine.generate(
            GenerateRequest(
                episode=self._episode,
                turn=turn.index,
                branch=turn.branch,
                input_ids=log.input_ids(),
                max_new_tokens=budget,
                sampling=self._sampling,
                stop_token_ids=self._parts.tokens.renderer.stop_token_ids,
                replay=replay,
                clock=deadline,
            )
        )
        if generation.replay and replay:
            log.replay.add(generation.replay, prompt_logprobs_from=replay.prompt_logprobs_from)
        return generation

    def _append(self, turn: TurnBuilder, generation: Generation) -> None:
        for start, end, version in _weight_runs(generation):
            self._log.append_sampled(
                generation.token_ids[start:end],
                generation.logprobs[start:end],
                turn=turn.index,
                weight_version=version,
                sampling=self._used,
            )
        turn.add(generation)


def _weight_runs(generation: Generation) -> Sequence[tuple[int, int, str | None]]:
    """Split the sample where the weights changed."""
    if not generation.weight_versions:
        return [(0, len(generation.token_ids), None)]
    return [(span.start, span.end, span.version) for span in generation.weight_versions]
