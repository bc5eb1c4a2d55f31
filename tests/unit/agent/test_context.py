"""The agent loop: exact tokens over many turns, every way an episode can end, what stays after one.

The engine plays texts through the real vocabulary and the tools are the real ones; the sandbox is
a double that answers by a rule, since commands are the tools' own tests.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swe_rollout.agent.policy_turns import MAX_ABORTS_PER_TURN
from swe_rollout.agent.tools import Offered, load_tool
from swe_rollout.agent.tools.base import Toolbox
from swe_rollout.agent.tools.face import Call, Face
from swe_rollout.engine.base import GenerateRequest
from swe_rollout.errors import EngineError, SandboxError
from swe_rollout.spec.limits import Limits
from swe_rollout.tokens.log import SegmentKind
from swe_rollout.types.episode import StopReason
from swe_rollout.types.turn import CallStatus, FinishReason, Turn, WeightSpan
from unit.agent.agent_parts import (
    BROKEN,
    END,
    RENDERER,
    SUBMIT,
    Aborting,
    Echo,
    Played,
    Player,
    bash,
    encode,
    loop_of,
    player,
)


def assert_exact(loop: Played, engine: Player) -> None:
    """P1 and P5 over a whole episode."""
    ids, mask = loop.log.ids, loop.log.loss_mask
    for request in engine.requests:
        assert ids[: len(request.input_ids)] == request.input_ids.tolist()
    for turn in loop.turns:
        assert loop.log.request().length >= turn.request.length
        first = next(r for r in engine.requests if r.turn == turn.index)
        assert turn.request.length == len(first.input_ids)
        assert mask[turn.request.length : turn.request.length + turn.completion_tokens].all()
    assert mask.sum() == sum(turn.completion_tokens for turn in loop.turns)
    np.testing.assert_array_equal(np.isfinite(loop.log.logprobs), mask == 1)


async def test_an_episode_goes_from_the_task_to_the_submission() -> None:
    engine, sandbox = player(bash("ls"), bash("pwd"), SUBMIT), Echo()
    seen: list[Turn] = []
    loop = loop_of(engine, sandbox=sandbox, on_turn=seen.append)

    assert await loop.run() is StopReason.SUBMITTED

    assert sandbox.commands == ["ls", "pwd"]
    assert [turn.index for turn in loop.turns] == [0, 1, 2]
    assert seen == loop.turns
    assert loop.turns[0].text == bash("ls") + END
    assert loop.turns[0].observations[0].text == "exit code: 0\nstdout:\nls"
    assert loop.turns[0].cached_tokens == 7
    kinds = [segment.kind for segment in loop.log.segments]
    assert kinds == [SegmentKind.PROMPT, *[SegmentKind.SAMPLED, SegmentKind.DELTA] * 2,
                     SegmentKind.SAMPLED]  # fmt: skip
    assert_exact(loop, engine)


async def test_the_log_reads_as_the_conversation_the_policy_had() -> None:
    loop = loop_of(player(bash("ls"), SUBMIT))
    await loop.run()

    text = RENDERER.decode(loop.log.ids)
    assert text.endswith(
        "<|im_start|>assistant\n" + bash("ls") + "<|im_end|>\n<|im_start|>user\n<tool_response>\n"
        "exit code: 0\nstdout:\nls\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
        + SUBMIT + "<|im_end|>"
    )  # fmt: skip


async def test_calls_of_a_turn_run_in_order_and_end_with_the_submission() -> None:
    sandbox = Echo()
    loop = loop_of(player(bash("one") + bash("two") + SUBMIT + bash("three")), sandbox=sandbox)

    assert await loop.run() is StopReason.SUBMITTED
    assert sandbox.commands == ["one", "two"]
    assert len(loop.turns[0].tool_calls) == 4
    assert len(loop.turns[0].observations) == 3


class Calls:
    """What `count` remembers."""

    count = 0
    closed = 0

    async def aclose(self) -> None:
        Calls.closed += 1


async def count(call: Call) -> str:
    calls = call.context.state.of(Calls)
    calls.count += 1
    return f"call {calls.count}, {call.context.timeout_s:g} s"


async def test_what_a_tool_remembers_is_the_episode_s_own_until_its_end() -> None:
    """Row T7: one tool serves all episodes, and each has its own state, given back at its end."""
    tools = Toolbox(
        [Offered(Face(load_tool("bash").spec, count), timeout_s=7.0), load_tool("submit")]
    )
    Calls.closed = 0

    for _ in range(2):
        loop = loop_of(player(bash("a") + bash("b"), bash("c"), SUBMIT), tools=tools)
        assert await loop.run() is StopReason.SUBMITTED
        texts = [each.text for turn in loop.turns for each in turn.observations]
        assert texts[:3] == ["call 1, 7 s", "call 2, 7 s", "call 3, 7 s"]
    assert Calls.closed == 2


async def test_an_aborted_generation_goes_on_in_the_same_turn_with_the_rest_of_its_budget() -> None:
    turns = [encode(bash("ls") + END), encode(SUBMIT + END)]
    engine = Aborting(turns)
    engine.step = 20
    loop = loop_of(engine, limits=Limits(max_new_tokens=200))

    assert await loop.run() is StopReason.SUBMITTED

    parts = [r for r in engine.requests if r.turn == 0]
    assert len(parts) == math.ceil(len(turns[0]) / 20) > 1
    assert [r.max_new_tokens for r in parts] == [200 - 20 * n for n in range(len(parts))]
    assert loop.turns[0].completion_tokens == len(turns[0])
    assert loop.turns[0].request.length == len(parts[0].input_ids)
    assert loop.turns[0].cached_tokens == 0
    assert loop.turns[0].weight_versions[1] == WeightSpan("2", 20, len(turns[0]))
    versions = [s.weight_version for s in loop.log.segments if s.kind is SegmentKind.SAMPLED]
    assert versions[:2] == ["1", "2"]
    assert_exact(loop, engine)


async def test_an_abort_that_used_up_the_budget_is_a_cut_turn() -> None:
    engine = Aborting([encode(bash("ls") + END)])
    engine.step = 5
    loop = loop_of(engine, limits=Limits(max_new_tokens=10))

    assert await loop.run() is StopReason.TOKEN_LIMIT
    assert loop.turns[0].finish_reason is FinishReason.LENGTH


async def test_an_engine_that_always_aborts_is_a_failure_and_its_tokens_stay() -> None:
    engine = Aborting([encode("word " * 300)])
    engine.step = 1
    loop = loop_of(engine)

    with pytest.raises(EngineError, match=f"aborted {MAX_ABORTS_PER_TURN} times"):
        await loop.run()
    assert loop.log.sampled == MAX_ABORTS_PER_TURN
    assert loop.turns[0].finish_reason is FinishReason.ABORT
    assert loop.turns[0].tool_calls == ()


async def test_an_engine_failure_leaves_what_was_there_before_it() -> None:
    def fail(request: GenerateRequest) -> None:
        if request.turn == 1:
            raise EngineError("the engine is gone")

    engine = replace(player(bash("ls"), SUBMIT), before=fail)
    told: list[Turn] = []
    loop = loop_of(engine, on_turn=told.append)

    with pytest.raises(EngineError, match="gone"):
        await loop.run()
    assert len(loop.turns) == len(told) == 1
    assert_exact(loop, engine)


async def test_a_lost_sandbox_leaves_the_sampled_turn_in_the_record() -> None:
    told: list[Turn] = []
    loop = loop_of(player(bash("ls")), sandbox=Echo(lost=True), on_turn=told.append)

    with pytest.raises(SandboxError, match="gone"):
        await loop.run()
    assert (loop.turns[0].tool_calls[0].status, loop.turns[0].observations) == (CallStatus.OK, ())
    assert told == []
    assert loop.log.sampled == loop.turns[0].completion_tokens > 0


async def test_cancelling_keeps_the_sampled_turn_too() -> None:
    sandbox = Echo(pause_s=30)
    loop = loop_of(player(bash("sleep")), sandbox=sandbox)
    task = asyncio.create_task(loop.run())
    await asyncio.wait_for(sandbox.busy.wait(), 5)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(loop.turns) == 1


async def test_ids_the_tokenizer_does_not_know_are_kept_as_sampled() -> None:
    odd = [RENDERER.vocab_size + 5, *encode("done" + END)]
    loop = loop_of(Player([odd]))

    assert await loop.run() is StopReason.FINISHED
    assert loop.log.ids[-len(odd) :] == odd


TEXTS = st.sampled_from([bash("echo hello"), bash("ls") + bash("pwd"), BROKEN, "é🙂" + bash("x")])


@settings(deadline=None, max_examples=40)
@given(st.lists(TEXTS, min_size=1, max_size=4), st.randoms(use_true_random=False))
async def test_any_segmentation_of_what_is_sampled_keeps_the_prefix_and_the_text(
    texts: list[str], random: Random
) -> None:
    def resplit(text: str) -> list[int]:
        cuts = sorted(random.sample(range(len(text) + 1), k=min(5, len(text))))
        return encode(*(text[a:b] for a, b in zip([0, *cuts], [*cuts, None], strict=True))) + (
            encode(END)
        )

    engine = Player([resplit(text) for text in [*texts, "done"]])
    loop = loop_of(engine, sandbox=Echo(output=b"out"))

    await loop.run()

    assert_exact(loop, engine)
    for turn, text in zip(loop.turns, [*texts, "done"], strict=False):
        assert turn.text == text + END
        sampled = engine.turns[turn.index]
        start = turn.request.length
        assert loop.log.ids[start : start + len(sampled)] == list(sampled)


async def test_a_long_episode_costs_the_same_each_turn_and_knows_no_recursion() -> None:
    engine = player(bash("ls"))
    loop = loop_of(engine, limits=Limits(turns=600, context_tokens=10**6))

    assert await loop.run() is StopReason.TURN_LIMIT
    deltas = {s.end - s.start for s in loop.log.segments if s.kind is SegmentKind.DELTA}
    assert len(deltas) == 1
