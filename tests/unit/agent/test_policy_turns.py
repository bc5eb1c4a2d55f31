"""What the agent loop may record beside ids: asked for, aligned; and the clock a call carries."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from swe_rollout.engine.base import GenerateRequest
from swe_rollout.engine.errors import ContextOverflowError
from swe_rollout.errors import EngineError
from swe_rollout.spec.limits import Limits
from swe_rollout.tokens.log import SegmentKind
from swe_rollout.tokens.replay import ExpertShape, Recording, ReplayRows
from swe_rollout.types.episode import StopReason
from swe_rollout.types.turn import FinishReason, Generation
from unit.agent.agent_parts import (
    END,
    SUBMIT,
    Aborting,
    Player,
    Telling,
    bash,
    encode,
    loop_of,
    player,
)


async def test_rows_of_every_answer_line_up_with_the_log_also_over_aborts() -> None:
    engine = Telling([encode(bash("ls") + END), encode(SUBMIT + END)])
    recording = Recording(ExpertShape(2, 1), sampling_mask=True, prompt_logprobs=True)
    loop = loop_of(engine, recording=recording)

    assert await loop.run() is StopReason.SUBMITTED

    log = loop.log
    experts = log.replay.routed_experts()
    assert experts is not None
    assert (experts.rows, experts.layers, experts.topk) == (len(log) - 1, 2, 1)
    mask = log.replay.sampling_mask()
    assert mask is not None
    sampled = [token for token, own in zip(log.ids, log.loss_mask, strict=True) if own]
    assert [mask.ids[offset] for offset in mask.offsets[:-1]] == sampled
    logprobs = log.replay.prompt_logprobs(len(log))
    assert logprobs is not None
    deltas = [s for s in log.segments if s.kind is SegmentKind.DELTA]
    told = [position for segment in deltas for position in range(segment.start, segment.end)]
    assert np.flatnonzero(~np.isnan(logprobs)).tolist() == told
    assert logprobs[told].tolist() == [-float(position) for position in told]


async def test_a_call_never_asks_for_logprobs_from_the_beginning_of_the_prompt() -> None:
    engine = Telling([encode(bash("ls") + END), encode(SUBMIT + END)])
    await loop_of(engine, recording=Recording(prompt_logprobs=True)).run()

    starts = [r.replay.prompt_logprobs_from for r in engine.requests if r.replay is not None]
    asked = [start for start in starts if start is not None]
    assert len(asked) == 1
    assert asked[0] > 0


async def test_an_answer_that_was_aborted_before_its_first_token_is_not_asked_twice() -> None:
    class Slow(Telling):
        def answer(self, request: GenerateRequest) -> Generation:
            generation = super().answer(request)
            if request.turn == 1 and sum(r.turn == 1 for r in self.requests) == 1:
                return replace(generation, token_ids=(), logprobs=(), weight_versions=(),
                               finish_reason=FinishReason.ABORT,
                               replay=replace(generation.replay or ReplayRows(), experts=None,
                                              kept_ids=(), kept_logprobs=()))  # fmt: skip
            return generation

    engine = Slow([encode(bash("ls") + END), encode(SUBMIT + END)])
    engine.step = 1000
    loop = loop_of(engine, recording=Recording(prompt_logprobs=True))

    assert await loop.run() is StopReason.SUBMITTED
    starts = [r.replay.prompt_logprobs_from for r in engine.requests if r.replay and r.turn == 1]
    assert [start is None for start in starts] == [False, True]


async def test_nothing_is_asked_for_unless_the_job_wants_it() -> None:
    engine = player(SUBMIT)
    loop = loop_of(engine)
    await loop.run()
    assert engine.requests[0].replay is None
    assert loop.log.replay.routed_experts() is None


async def test_time_that_the_engine_was_away_is_not_the_episode_s_to_lose() -> None:
    class Away(Player):
        async def generate(self, request: GenerateRequest) -> Generation:
            assert request.clock is not None
            with request.clock.paused():
                self.pause_s = 1.1
                return await super().generate(request)

    loop = loop_of(Away([encode(SUBMIT + END)]), limits=Limits(episode_seconds=1))
    assert await loop.run() is StopReason.SUBMITTED


async def test_an_engine_that_samples_nothing_at_first_has_failed_not_the_task() -> None:
    class Full(Player):
        def answer(self, request: GenerateRequest) -> Generation:
            return Generation((), (), FinishReason.LENGTH, len(request.input_ids))

    with pytest.raises(EngineError, match="the engine sampled nothing") as caught:
        await loop_of(Full([[]])).run()
    assert "context_tokens" in caught.value.fix


async def test_a_first_turn_that_overflows_where_it_was_aborted_is_kept() -> None:
    class Small(Aborting):
        def answer(self, request: GenerateRequest) -> Generation:
            if len(self.requests) > 1:
                raise ContextOverflowError("the input is longer than the model's context")
            return super().answer(request)

    loop = loop_of(Small([encode(SUBMIT + END)]))

    assert await loop.run() is StopReason.CONTEXT_FULL
    assert [turn.completion_tokens for turn in loop.turns] == [loop.log.sampled] == [Small.step]
