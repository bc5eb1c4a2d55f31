"""TurnSampler: sample one turn, over all the responses of the engine for it, into the log."""

from __future__ import annotations

from collections.abc import Sequence

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    RetryError,
    retry_if_result,
    stop_after_attempt,
    wait_exponential,
)

from swe_rollout.agent.parts import AgentParts
from swe_rollout.agent.taken_turn import TurnBuilder
from swe_rollout.engine.base import GenerateRequest
from swe_rollout.errors import EngineError
from swe_rollout.spec.policy import Sampling
from swe_rollout.tokens.log import SamplingUsed, TokenLog
from swe_rollout.types.deadline import Deadline
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.turn import FinishReason, Generation

MAX_ABORTS_PER_TURN = 16
"""Continuations of one turn; an engine that always aborts is a failure of the engine."""
_BACKOFF = wait_exponential(multiplier=0.05, max=5.0)


def _wait(state: RetryCallState) -> float:
    """Wait only for an engine that sampled nothing."""
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
        """Sample one turn of `budget` tokens at most; one that is aborted goes on where it was.

        Raises EngineError when the engine fails, or aborts without end.
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
        """Add what one call of the engine samples, with what is left of the budget."""
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
    """Cut what was sampled where the weights changed; EngineError where their spans leave gaps."""
    total = len(generation.token_ids)
    if not generation.weight_versions:
        return [(0, total, None)]
    runs = [(span.start, span.end, span.version) for span in generation.weight_versions]
    if [0, *(end for _, end, _ in runs)] != [*(start for start, _, _ in runs), total]:
        raise EngineError(
            "the engine's weight versions do not cover what it sampled",
            why=f"{len(runs)} spans for {total} tokens",
        )
    return runs
