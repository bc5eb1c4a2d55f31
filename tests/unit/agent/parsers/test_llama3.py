"""Llama 4 puts words between two tokens, and calls behind the second."""

from __future__ import annotations

import json

import pytest

from swe_rollout.agent.parsers import parser_for
from swe_rollout.agent.parsers.base import Mark, Reasoning, SampledText
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.spec.tool_format import ToolFormat
from swe_rollout.types.turn import CallStatus, ToolCall

TOOLS = (ToolSpec("submit", ""),)
CALL = json.dumps({"name": "submit", "parameters": {}})
START, END = "<|python_start|>", "<|python_end|>"


def parse(text: str) -> tuple[ToolCall, ...]:
    marks = [Mark(at, token) for token in (START, END) if (at := text.find(token)) >= 0]
    sampled = SampledText(text, tuple(marks), frozenset({START, END}))
    return parser_for(ToolFormat.LLAMA3).parse(sampled, tools=TOOLS, reasoning=Reasoning())


@pytest.mark.parametrize("words", ["", "Let me look.", '{"name": "submit"}'])
def test_a_call_behind_words_between_tokens(words: str) -> None:
    assert [call.status for call in parse(f"{START}{words}{END}{CALL}")] == [CallStatus.OK]


@pytest.mark.parametrize("rest", [CALL, " and more", "\n" + CALL])
def test_what_stands_behind_a_call_refuses_it(rest: str) -> None:
    (call,) = parse(f"{START}{END}{CALL}{rest}")
    assert call.status is CallStatus.INVALID_JSON


def test_words_between_tokens_are_no_call() -> None:
    assert parse(f"{START}{CALL}{END}") == () or all(
        call.status is not CallStatus.OK for call in parse(f"{START}{CALL}{END}")
    )
