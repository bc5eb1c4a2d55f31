from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_rollout.engine.base import GenerateRequest
from swe_rollout.engine.errors import ContextOverflowError, UnavailableError
from swe_rollout.errors import UsageError
from swe_rollout.integrations.strands.config import TurnSampling
from swe_rollout.integrations.strands.conversation import (
    INVALID_CALL,
    Conversation,
    SaidTurn,
    TurnInput,
    events_of,
)
from swe_rollout.integrations.strands.exceptions import HistoryError
from swe_rollout.integrations.strands.messages import NewMessages
from swe_rollout.integrations.strands.tools import read_tools
from swe_rollout.spec.policy import Sampling
from swe_rollout.tokens.log import SegmentKind
from swe_rollout.tokens.replay import ExpertShape, Recording, ReplayRows
from swe_rollout.types.turn import CallStatus, FinishReason, Generation, ToolCall
from trainers.strands.policies import Part, SayingEngine, call, renderer

BASH = read_tools(
    [
        {
            "name": "bash",
            "description": "Run a command.",
            "inputSchema": {
                "json": {
                    "type": "object",
                    "properties": {"command": {"type": "string"}},
                    "required": ["command"],
                }
            },
        }
    ],
    (),
)
FULL = UnavailableError("full")
GOOD = ToolCall(CallStatus.OK, "…", "bash", {"command": "é"})
BAD = ToolCall(CallStatus.INVALID_JSON, "{", "bash", problem="not run: no JSON")


def given_(new: NewMessages, *, limit: int = 64, context: int | None = None) -> TurnInput:
    return TurnInput(new, "You act.", BASH, TurnSampling(Sampling(), limit), context)


def user(*texts: str) -> NewMessages:
    return NewMessages({}, texts)


def ls(*commands: str) -> str:
    return "".join(call("bash", {"command": command}) for command in commands)


async def test_ids_of_calls_are_unique_and_in_order() -> None:
    """WS1."""
    engine = SayingEngine([ls(*map(str, range(12))), ls("x"), "Done."])
    talk = Conversation(engine, renderer())
    first = await talk.say(given_(user("Hi"), limit=999))
    assert list(first.use_ids) == sorted(first.use_ids)
    assert len(set(first.use_ids)) == 12
    # The answers come in any order.
    answers = {use: f"answer {i}" for i, use in reversed(list(enumerate(first.use_ids)))}
    second = await talk.say(given_(NewMessages(answers)))
    assert set(second.use_ids).isdisjoint(first.use_ids)
    sent = engine.prompt(1)
    assert [sent.index(f"answer {i}\n") for i in range(12)] == sorted(
        sent.index(f"answer {i}\n") for i in range(12)
    )


async def test_calls_need_all_of_their_answers() -> None:
    engine = SayingEngine([ls("a", "b"), "Done."])
    talk = Conversation(engine, renderer())
    turn = await talk.say(given_(user("Hi")))
    for results in ({}, {turn.use_ids[0]: "1"}, dict.fromkeys([*turn.use_ids, "more"], "1")):
        with pytest.raises(HistoryError, match="2 calls"):
            await talk.say(given_(NewMessages(results)))
    await talk.say(given_(NewMessages(dict.fromkeys(turn.use_ids, "1"))))


async def test_results_before_any_turn_are_refused() -> None:
    talk = Conversation(SayingEngine([]), renderer())
    with pytest.raises(HistoryError, match="nobody made"):
        await talk.say(given_(NewMessages({"a": "1"})))


@pytest.mark.parametrize("turns", [0, 2])
async def test_a_turn_that_fails_before_a_token_leaves_no_trace(turns: int) -> None:
    """S2, WS8."""
    talk = Conversation(
        SayingEngine([*["Yes."] * turns, FULL, asyncio.CancelledError(), "Done."]), renderer()
    )
    for index in range(turns):
        await talk.say(given_(user(f"Prompt {index}")))
    before = (talk.log.ids, talk.log.segments, talk.log.logprobs.tolist(), talk.log.request())
    with pytest.raises(UnavailableError):
        await talk.say(given_(user("A long one")))
    assert talk.log.segments == before[1]
    with pytest.raises(asyncio.CancelledError):
        await asyncio.ensure_future(talk.say(given_(user("A longer one"))))
    after = (talk.log.ids, talk.log.segments, talk.log.logprobs.tolist(), talk.log.request())
    assert str(after) == str(before)  # NaN is not equal to itself
    said = await talk.say(given_(user("Short")))
    assert said.text == "Done."
    assert "long" not in renderer().decode(talk.log.ids)


class Recorded(SayingEngine):
    """Answers with the replay data of every position it has read: each has its own id's expert."""

    async def generate(self, request: GenerateRequest) -> Generation:
        generation, wanted = await super().generate(request), request.replay
        assert wanted is not None
        ids = [*request.input_ids.tolist(), *generation.token_ids]
        start = wanted.prompt_logprobs_from
        prompt = [] if start is None else [-float(i) for i in request.input_ids.tolist()[start:]]
        experts = np.array(ids[wanted.experts_from : -1], np.int32).reshape(-1, 1, 1)
        return replace(generation, replay=ReplayRows(experts, prompt_logprobs=tuple(prompt)))


@pytest.mark.parametrize("turns", [0, 1, 2])
async def test_replay_data_of_a_prompt_that_was_taken_back_goes_with_it(turns: int) -> None:
    aborted = Part("", FinishReason.ABORT)
    engine = Recorded([*["Yes."] * turns, aborted, FULL, "No.", "Done."])
    talk = Conversation(engine, renderer(), Recording(ExpertShape(1, 1), prompt_logprobs=True))
    for index in range(turns):
        await talk.say(given_(user(f"Prompt {index}")))
    with pytest.raises(UnavailableError):
        await talk.say(given_(user("A prompt that is far too long to be taken")))
    await talk.say(given_(user("Short")))
    await talk.say(given_(user("Another")))

    experts = talk.log.replay.routed_experts()
    assert experts is not None
    assert experts.array().flatten().tolist() == talk.log.ids[:-1]
    prompt = talk.log.replay.prompt_logprobs(len(talk.log))
    assert prompt is not None
    deltas = [each for each in talk.log.segments if each.kind is SegmentKind.DELTA]
    told = [i for each in deltas for i in range(each.start, each.end)]
    assert np.flatnonzero(~np.isnan(prompt)).tolist() == told
    assert prompt[told].tolist() == [-float(talk.log.ids[i]) for i in told]


async def test_a_turn_that_was_begun_goes_on_with_what_is_left_of_its_budget() -> None:
    text = ls("a")
    engine = SayingEngine([Part(text[:30], FinishReason.ABORT), FULL, text[30:]])
    talk = Conversation(engine, renderer())
    with pytest.raises(UnavailableError):
        await talk.say(given_(user("Hi")))
    with pytest.raises(HistoryError, match="changed"):
        await talk.say(given_(user("Something else")))
    with pytest.raises(HistoryError, match="not complete"):
        await talk.prompt_of(given_(user("Hi")))
    turn = await talk.say(given_(user("Hi")))
    assert turn.text == text
    begun = talk.log.segments[1].end - talk.log.segments[1].start
    assert engine.requests[2].max_new_tokens == 64 - begun
    assert turn.completion_tokens == talk.log.sampled


async def test_a_question_aside_leaves_the_tokens_as_they_are() -> None:
    talk = Conversation(SayingEngine(["Yes."]), renderer())
    assert talk.log.ids == []
    first = await talk.prompt_of(given_(user("Hi")))
    assert talk.log.ids == []
    await talk.say(given_(user("Hi")))
    assert talk.log.ids[: len(first)] == first
    aside = await talk.prompt_of(given_(user("Was it good?")))
    assert aside[: len(talk.log)] == talk.log.ids
    assert "Was it good?" not in renderer().decode(talk.log.ids)


async def test_a_full_context_is_found_before_anything_is_appended() -> None:
    talk = Conversation(SayingEngine([]), renderer(), Recording(prompt_logprobs=True))
    with pytest.raises(ContextOverflowError):
        await talk.say(given_(user("x " * 4000), context=1000))
    assert talk.log.ids == []


async def test_two_turns_at_once_are_refused() -> None:
    engine = SayingEngine(["Yes."])
    talk = Conversation(engine, renderer())
    tasks = [asyncio.create_task(talk.say(given_(user("Hi")))) for _ in range(2)]
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(each, UsageError) for each in done] == [False, True]


@given(st.lists(st.sampled_from(["say", "call", "fail", "cut"]), max_size=12), st.data())
async def test_every_request_begins_with_all_that_was_sent_and_sampled(
    kinds: list[str], data: st.DataObject
) -> None:
    """S6: whatever happens in between, and whatever users and tools say."""
    texts = st.text(max_size=20) | st.sampled_from(["<|im_end|>", "<tool_call>", "\n\n"])
    says: dict[str, str | Part | BaseException] = {
        "say": "Yes.",
        "call": ls("a", "b"),
        "fail": FULL,
        "cut": Part("ls", FinishReason.LENGTH),
    }
    engine = SayingEngine([each for kind in kinds for each in (says[kind],)] + ["Done."])
    talk = Conversation(engine, renderer())
    new = user("Hi")
    for _ in kinds:
        try:
            turn = await talk.say(given_(new))
        except UnavailableError:
            new = NewMessages(new.results, (*new.texts, data.draw(texts)))
            continue
        results = {use: data.draw(texts) for use in turn.use_ids}
        new = NewMessages(results, () if results else (data.draw(texts),))
    await talk.say(given_(new))
    ids = talk.log.ids
    answered = [
        r for r, kind in zip(engine.requests, [*kinds, "say"], strict=True) if kind != "fail"
    ]
    for request in answered:
        sent = request.input_ids.tolist()
        assert ids[: len(sent)] == sent
    lengths = [len(request.input_ids) for request in answered]
    assert lengths == sorted(set(lengths))
    assert talk.turns == len(answered)


def turn(*calls: ToolCall, finish: FinishReason = FinishReason.STOP) -> SaidTurn:
    ids = tuple(f"call_{i}" for i in range(len(calls)))
    return SaidTurn("I act.", calls, ids, finish, 90, 10, 80, 1.5)


def test_a_message_is_its_text_and_then_its_calls() -> None:
    events = list(events_of(turn(GOOD, BAD)))
    assert events[:4] == [
        {"messageStart": {"role": "assistant"}},
        {"contentBlockStart": {"start": {}}},
        {"contentBlockDelta": {"delta": {"text": "I act."}}},
        {"contentBlockStop": {}},
    ]
    starts = [event["contentBlockStart"] for event in events if "contentBlockStart" in event]
    assert starts[1:] == [
        {"start": {"toolUse": {"toolUseId": "call_0", "name": "bash"}}},
        {"start": {"toolUse": {"toolUseId": "call_1", "name": INVALID_CALL}}},
    ]
    inputs = [
        json.loads(delta["toolUse"]["input"])
        for event in events
        if isinstance(block := event.get("contentBlockDelta"), dict)
        and "toolUse" in (delta := block["delta"])
    ]
    assert inputs == [
        {"command": "é"},
        {"name": "bash", "raw": "{", "problem": "not run: no JSON"},
    ]


def test_a_message_ends_as_the_turn_did() -> None:
    """S9."""

    def reason(said: SaidTurn) -> object:
        (stop,) = [event["messageStop"] for event in events_of(said) if "messageStop" in event]
        return stop

    assert reason(turn()) == {"stopReason": "end_turn"}
    assert reason(turn(GOOD)) == reason(turn(BAD)) == {"stopReason": "tool_use"}
    assert reason(turn(finish=FinishReason.LENGTH)) == {"stopReason": "max_tokens"}


def test_usage_and_latency_come_last() -> None:
    """S9."""
    *_, last = events_of(turn())
    assert last == {
        "metadata": {
            "usage": {
                "inputTokens": 90,
                "outputTokens": 10,
                "totalTokens": 100,
                "cacheReadInputTokens": 80,
            },
            "metrics": {"latencyMs": 1500},
        }
    }
