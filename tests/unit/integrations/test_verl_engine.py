"""Sampling through verl's server manager: lengths, stops, weight versions, experts, failures.

`Output` has the fields of verl 0.9.1's TokenOutput; tests/trainers/verl plays the real one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from swe_rollout.engine.base import GenerateRequest
from swe_rollout.engine.checked import Vocabulary, checked_engine
from swe_rollout.errors import EngineError
from swe_rollout.integrations import verl_engine
from swe_rollout.integrations.verl_engine import VerlEngine
from swe_rollout.spec.policy import Sampling
from swe_rollout.tokens.log import InputIds
from swe_rollout.types.deadline import Deadline
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.turn import FinishReason, WeightSpan
from waits import spared_s

EPISODE = EpisodeId("job", "task", 1)
STOP = 99


@dataclass
class Output:
    token_ids: list[int]
    log_probs: list[float] | None = None
    routed_experts: Any = None
    stop_reason: str | None = "completed"
    num_preempted: int | None = None
    extra_fields: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.log_probs is None:
            self.log_probs = [-1.0] * len(self.token_ids)


@dataclass
class Servers:
    outputs: list[Output | Exception]
    calls: list[dict[str, Any]] = field(default_factory=list)

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]
    ) -> Output:
        self.calls.append({"id": request_id, "prompt": prompt_ids, **sampling_params})
        output = self.outputs.pop(0)
        if isinstance(output, Exception):
            raise output
        return output


def engine_of(*outputs: Output | Exception) -> VerlEngine:
    return VerlEngine(Servers([*outputs]), prompt_tokens=8, response_tokens=10, tokenizer="t")


def servers_of(engine: VerlEngine) -> Servers:
    servers = engine._server_manager
    assert isinstance(servers, Servers)
    return servers


def request(*ids: int, branch: int = 0, turn: int = 0, most: int = 100) -> GenerateRequest:
    return GenerateRequest(
        EPISODE, turn, InputIds.of(ids), most, Sampling(temperature=0.5, top_k=7), (STOP,),
        branch=branch, clock=Deadline(60),
    )  # fmt: skip


async def test_what_is_sent_is_what_verl_takes() -> None:
    engine = engine_of(Output([5, STOP]), Output([STOP]))
    assert (await engine.info()).context_tokens == 18
    await engine.generate(request(1, 2, 3))
    await engine.generate(request(1, 2, 3, 5, STOP, 4, turn=1))
    first, second = servers_of(engine).calls
    assert first["id"] == second["id"]
    assert first["prompt"] == [1, 2, 3]
    assert (first["max_tokens"], second["max_tokens"]) == (10, 7)
    assert (first["temperature"], first["top_k"], first["logprobs"]) == (0.5, 7, True)
    assert first["stop_token_ids"] == [STOP]


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (Output([5, 6]), FinishReason.LENGTH),
        (Output([5, 6], stop_reason="length"), FinishReason.LENGTH),
        (Output([5, 6], stop_reason="stop"), FinishReason.STOP),
        (Output([5, 6], stop_reason="aborted"), FinishReason.ABORT),
        (Output([5, 6], stop_reason="abort"), FinishReason.ABORT),
        (Output([5], stop_reason=None), FinishReason.LENGTH),
    ],
)
async def test_the_end_of_a_response_is_told_apart(output: Output, reason: FinishReason) -> None:
    assert (await engine_of(output).generate(request(1))).finish_reason is reason


async def test_a_response_never_grows_beyond_what_verl_pads_to() -> None:
    engine = engine_of(Output([5] * 9))
    await engine.generate(request(1, 2))
    full = await engine.generate(request(*range(12), turn=1))
    assert (full.token_ids, full.finish_reason) == ((), FinishReason.LENGTH)
    other = engine_of(Output([5]))
    with pytest.raises(EngineError, match="does not fit verl's 8") as raised:
        await other.generate(request(*range(9)))
    assert not raised.value.retryable
    assert servers_of(other).calls == []
    assert "data.max_prompt_length" in raised.value.fix


async def test_weight_versions_are_verls_global_steps() -> None:
    engine = engine_of(
        Output([5], extra_fields={"global_steps": 3}, num_preempted=1),
        Output([6, 7], extra_fields={"min_global_steps": 3, "max_global_steps": 4}),
        Output([8], num_preempted=2),
        Output([], extra_fields={"global_steps": 9}),
    )
    lane = engine.begin(EPISODE)
    spans = [(await engine.generate(request(1))).weight_versions for _ in range(4)]
    assert spans == [(WeightSpan("3", 0, 1),), (WeightSpan("3..4", 0, 2),), (), ()]
    assert (lane.seen.first_step, lane.seen.last_step, lane.seen.preempted) == (3, 4, 3)


async def test_experts_that_are_known_stay() -> None:
    engine = engine_of(
        Output([5], routed_experts=np.full((3, 2, 1), 1)),
        Output([6], routed_experts=np.full((5, 2, 1), 2)),
        Output([7], routed_experts=np.full((2, 2, 1), 3)),
    )
    lane = engine.begin(EPISODE)
    await engine.generate(request(1, 2, 3))
    await engine.generate(request(1, 2, 3, 5, 4, turn=1))
    assert lane.seen.experts[0][:, 0, 0].tolist() == [1, 1, 1, 2, 2]
    with pytest.raises(EngineError, match="experts of other tokens"):
        await engine.generate(request(1, 2, 3, 5, 4, 6, turn=2))


async def test_an_episode_that_sampled_nothing_has_experts_of_no_token() -> None:
    engine = engine_of(Output([5], routed_experts=np.full((3, 2, 1), 1)))
    early = engine.begin(other := EpisodeId("j", "early", 0))
    engine.end(other)
    assert early.seen.experts == {}

    played, idle = engine.begin(EPISODE), engine.begin(other)
    await engine.generate(request(1, 2, 3))
    engine.end(EPISODE)
    engine.end(other)
    assert played.seen.experts[0].shape == (3, 2, 1)
    assert idle.seen.experts[0].shape == (0, 2, 1)


async def test_another_attempt_begins_anew_under_the_same_handle() -> None:
    engine = engine_of(Output([5], extra_fields={"global_steps": 3}), Output([5]))
    lane = engine.begin(EPISODE)
    await engine.generate(request(1, 2))
    engine.release(EPISODE)
    assert lane.seen.last_step == 3
    await engine.generate(request(1, 2, 3, 4))
    seen = lane.seen
    assert (seen.last_step, seen.prompts) == (None, {0: 4})
    engine.end(EPISODE)
    engine.release(EPISODE)


async def test_aborts_without_tokens_are_waited_out_with_the_clock_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(verl_engine, "_PAUSE_S", 0.05)
    nothing = Output([], stop_reason="aborted")
    engine = engine_of(nothing, nothing, Output([5, STOP]))
    asked = request(1)
    assert asked.clock is not None
    seconds = asked.clock.elapsed_s + asked.clock.remaining_s
    assert (await engine.generate(asked)).token_ids == (5, STOP)
    assert spared_s(asked.clock, seconds) > 0.09, "two pauses"

    monkeypatch.setattr(verl_engine, "PATIENCE_S", 0.1)
    with pytest.raises(EngineError, match="aborted every call"):
        await engine_of(nothing, nothing, nothing).generate(request(1))


@pytest.mark.parametrize(
    ("output", "says"),
    [
        (RuntimeError("actor died"), "RuntimeError: actor died"),
        (Output([5, 6], log_probs=[-1.0]), "2 ids and 1 logprobs"),
        (Output([5], log_probs=[float("nan")]), "no finite logprob"),
        (Output([5, STOP, 6]), "after a stop token"),
    ],
)
async def test_what_cannot_be_trained_on_is_a_failure(
    output: Output | Exception, says: str
) -> None:
    with pytest.raises(EngineError) as raised:
        await checked_engine(engine_of(output), Vocabulary(100, ())).generate(request(1))
    assert says in f"{raised.value} {raised.value.why}"
