"""Answers of any engine: what can't be trained on is the engine's failure, whatever it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from swe_rollout.engine.base import EngineInfo
from swe_rollout.engine.chat.base import AssistantMessage, ChatCall, ChatResponse, ChatUsage
from swe_rollout.engine.checked import (
    Vocabulary,
    checked,
    checked_engine,
    checked_info,
    checked_message,
)
from swe_rollout.engine.errors import InvalidAnswerError
from swe_rollout.errors import Boundary, UnreachableError
from swe_rollout.types.turn import FinishReason, Generation, WeightSpan
from unit.engine.engine_parts import Echo, request

END, EOS = 9, 8
VOCABULARY = Vocabulary(10, special=(EOS, END))
REQUEST = request(1, 2, 3, max_new_tokens=4)
GOOD = Generation((4, 5, END), (-0.5, -0.25, 0.0), FinishReason.STOP, prompt_tokens=3)


def with_(**fields: Any) -> Generation:
    return replace(GOOD, **fields)


def ids(*values: Any) -> Generation:
    return with_(token_ids=values, logprobs=(-0.5,) * len(values))


def spans(*each: Any) -> Generation:
    return with_(weight_versions=tuple(each))


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (None, "it returned NoneType"),
        ({"token_ids": [4, END]}, "it returned dict"),
        (ids(4, END, 5, END), "number 2 of 4 ids is one"),
        (ids(4, 10, END), "range from 4 to 10, the vocabulary has 10"),
        (ids(4, -1, END), "range from -1 to 9"),
        (ids(4, 2**70, END), "`token_ids[1]`"),
        (ids(4, 5.0, END), "got `float` - at `token_ids[1]`"),
        (ids(4, np.True_, END), "got `numpy.bool"),
        (ids(4, np.int64(5), END), "got `numpy.int64`"),
        (with_(token_ids="abc"), "got `str`"),
        (with_(token_ids=np.array([4, 5, END])), "got `numpy.ndarray`"),
        (ids(1, 2, 3, 4, END), "5 tokens, 4 were asked for"),
        (with_(logprobs=(-0.5, -0.25)), "3 ids and 2 logprobs"),
        (with_(logprobs=()), "3 ids and 0 logprobs"),
        (with_(logprobs=(-0.5, -0.25, math.nan)), "no finite logprob"),
        (with_(logprobs=(-0.5, -math.inf, 0.0)), "no finite logprob"),
        (with_(logprobs=(-0.5, -0.25, 0.5)), "a probability above 1"),
        (with_(logprobs=(-0.5, -1e30, 0.0)), "can't have been sampled"),
        (with_(logprobs=(-0.5, -(10**400), 0.0)), "`logprobs[1]`"),
        (with_(logprobs=(-0.5, "-0.25", 0.0)), "got `str` - at `logprobs[1]`"),
        (with_(finish_reason="eos"), "'eos'"),
        (ids(4, 5), "the last ids [4, 5]"),
        (ids(), "the last ids []"),
        (with_(prompt_tokens=2), "read 2 tokens of a prompt of 3"),
        (with_(prompt_tokens=None), "`prompt_tokens`"),
        (with_(cached_tokens=-1), "`cached_tokens`"),
        (with_(cached_tokens=2**70), "`cached_tokens`"),
        (spans(WeightSpan("v", 0, 2)), "[0, 2)"),
        (spans(WeightSpan("v", 0, 2), WeightSpan("w", 1, 3)), "one after the other"),
        (spans(WeightSpan("v", 0, 3), WeightSpan("w", 3, 2)), "one after the other"),
        (spans(WeightSpan(7, 0, 3)), "got `int` - at `weight_versions[0].version`"),  # type: ignore[arg-type]
        (spans(WeightSpan("v" * 300, 0, 3)), "length <= 256"),
        (spans(WeightSpan("\x1b[31m", 0, 3)), "text without control characters"),
        (spans("v"), "`weight_versions[0]`"),
    ],
)  # fmt: skip
def test_what_cannot_be_trained_on_is_the_engines_failure(answer: object, says: str) -> None:
    with pytest.raises(InvalidAnswerError) as caught:
        checked(answer, REQUEST, VOCABULARY)
    assert says in str(caught.value)
    assert len(str(caught.value)) < 500
    assert caught.value.fix
    assert caught.value.boundary is Boundary.ENGINE


@pytest.mark.parametrize(
    ("reason", "sampled", "wanted"),
    [
        (FinishReason.STOP, (4, END), FinishReason.STOP),
        ("stop", (4, END), FinishReason.STOP),
        (FinishReason.LENGTH, (4, END), FinishReason.STOP),
        (FinishReason.ABORT, (4, END), FinishReason.STOP),
        (FinishReason.STOP, (4, EOS), FinishReason.STOP),
        (FinishReason.LENGTH, (4, 5), FinishReason.LENGTH),
        (FinishReason.LENGTH, (), FinishReason.LENGTH),
        (FinishReason.ABORT, (), FinishReason.ABORT),
    ],
)
def test_a_stop_token_ends_the_turn_whatever_is_reported(
    reason: FinishReason, sampled: Sequence[int], wanted: FinishReason
) -> None:
    found = checked(replace(ids(*sampled), finish_reason=reason), REQUEST, VOCABULARY)
    assert found.finish_reason is wanted
    assert found.token_ids == tuple(sampled)


def test_versions_of_nothing_are_left_out() -> None:
    answer = spans(WeightSpan("v", 0, 0), WeightSpan("w", 0, 3), WeightSpan("x", 3, 3))
    assert checked(answer, REQUEST, VOCABULARY).weight_versions == (WeightSpan("w", 0, 3),)


async def test_every_call_is_checked() -> None:
    engine = checked_engine(Echo(ids=(4, 11)), VOCABULARY)
    with pytest.raises(InvalidAnswerError, match="the vocabulary has 10"):
        await engine.generate(REQUEST)


CALL = ChatCall("1", "bash", "{}")
SAID = ChatResponse(AssistantMessage("hi", (CALL,)), FinishReason.STOP, ChatUsage(3, 2, 1), "m")


def ended(**fields: Any) -> ChatResponse:
    return replace(SAID, **fields)


def said(text: Any = "hi", *calls: Any, reasoning: Any = "", native: Any = b"") -> ChatResponse:
    return replace(SAID, message=AssistantMessage(text, calls, reasoning, native))


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (None, "it returned NoneType"),
        (said(None), "got `null` - at `message.text`"),
        (said("hi", reasoning=None), "`message.reasoning`"),
        (said("hi", native="{}"), "`message.native`"),
        (said("hi", None), "`message.calls[0]`"),
        (said("hi", ChatCall(1, "bash", "{}")), "`message.calls[0].id`"),  # type: ignore[arg-type]
        (said("hi", ChatCall("1", "bash", {})), "`message.calls[0].arguments`"),  # type: ignore[arg-type]
        (said("hi", CALL, CALL), "no ids of their own"),
        (said("hi", ChatCall("", "bash", "{}")), "no ids of their own"),
        (said("x" * (2**24 + 1)), "16777217 characters"),
        (ended(finish_reason="eos"), "'eos'"),
        (ended(finish_reason=FinishReason.ABORT), "ended a message with `abort`"),
        (ended(usage=None), "`usage`"),
        (ended(usage=ChatUsage(2**70)), "`usage.prompt_tokens`"),
        (ended(usage=ChatUsage(-1)), "`usage.prompt_tokens`"),
        (ended(model=None), "`model`"),
        (ended(model="\x1b[31m"), "text without control characters - at `model`"),
    ],
)  # fmt: skip
def test_a_message_that_cannot_be_recorded_is_the_engines_failure(
    answer: object, says: str
) -> None:
    with pytest.raises(InvalidAnswerError) as caught:
        checked_message(answer)
    assert says in str(caught.value)
    assert len(str(caught.value)) < 500
    assert caught.value.boundary is Boundary.ENGINE


def test_a_message_is_kept_as_it_is() -> None:
    assert checked_message(SAID) == SAID
    listed = replace(SAID, message=AssistantMessage("hi", [CALL]))  # type: ignore[arg-type]
    assert checked_message(listed) == SAID


@pytest.mark.parametrize(
    ("info", "says"),
    [
        (None, "it returned NoneType"),
        (EngineInfo("", None, None, None), "`model`"),
        (EngineInfo("m", 0, None, None), "`context_tokens`"),
        (EngineInfo("m", None, "9", None), "`vocab_size`"),  # type: ignore[arg-type]
        (EngineInfo("m\n", None, None, None), "`model`"),
    ],
)
def test_an_engine_that_does_not_say_what_it_serves_is_named(info: object, says: str) -> None:
    with pytest.raises(UnreachableError, match="does not say which model") as caught:
        checked_info(info)
    assert says in caught.value.why
    assert checked_info(EngineInfo("m", 5, 6, "v", "t")) == EngineInfo("m", 5, 6, "v", "t")
