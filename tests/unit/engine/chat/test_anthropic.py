"""Anthropic's messages: what is sent, and what is read from recorded shapes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from swe_rollout.engine.chat.anthropic import decode_response, encode_request
from swe_rollout.engine.chat.base import AssistantMessage, ChatCall, ChatUsage, UserMessage
from swe_rollout.engine.errors import InvalidAnswerError
from swe_rollout.spec.policy import Sampling
from swe_rollout.types.turn import FinishReason
from unit.engine.chat.chat_parts import ANTHROPIC_BODY, BASH, request


def sent(**fields: Any) -> dict[str, Any]:
    body = json.loads(encode_request(request(**fields), model="m"))
    assert isinstance(body, dict)
    return body


def with_content(*blocks: object, **fields: object) -> bytes:
    return json.dumps({"content": blocks, "stop_reason": "end_turn", **fields}).encode()


def test_a_conversation_is_sent_in_anthropic_s_form() -> None:
    body = sent()
    assert body["system"] == "Be brief."
    assert body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "Fix it."}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "c1", "name": "bash", "input": {"command": "ls"}},
                {"type": "tool_use", "id": "c2", "name": "b:d", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "README.md"},
                {
                    "type": "tool_result",
                    "tool_use_id": "c2",
                    "content": "no such tool",
                    "is_error": True,
                },
            ],
        },
    ]
    assert body["tools"] == [
        {"name": "bash", "description": "Run a command.", "input_schema": dict(BASH.parameters)}
    ]
    assert (body["model"], body["max_tokens"]) == ("m", 100)


def test_defaults_of_the_api_are_left_out() -> None:
    assert sent().keys() == {"model", "max_tokens", "messages", "system", "tools"}
    body = sent(sampling=Sampling(temperature=0.5, top_p=0.9, top_k=20))
    assert (body["temperature"], body["top_p"], body["top_k"]) == (0.5, 0.9, 20)


def test_the_last_message_is_marked_for_the_prompt_cache() -> None:
    kept = {"type": "ephemeral"}
    body = json.loads(encode_request(request(), model="m", prompt_cache=True))
    marks = [block.get("cache_control") for each in body["messages"] for block in each["content"]]
    assert marks == [None, None, None, None, None, kept]
    first = request(messages=(UserMessage("Fix it."),))
    body = json.loads(encode_request(first, model="m", prompt_cache=True))
    assert body["messages"][0]["content"][0]["cache_control"] == kept


def test_a_recorded_response_is_read() -> None:
    found = decode_response(json.dumps(ANTHROPIC_BODY).encode())
    assert found.message.text == "I look around."
    assert found.message.reasoning == "A listing first."
    (call,) = found.message.calls
    assert (call.id, call.name, json.loads(call.arguments)) == (
        "toolu_01A09q90",
        "bash",
        {"command": "ls"},
    )
    assert found.finish_reason is FinishReason.STOP
    assert found.usage == ChatUsage(1117, 46, 1024)


def test_what_the_policy_said_goes_back_unchanged() -> None:
    said = decode_response(json.dumps(ANTHROPIC_BODY).encode()).message
    body = sent(messages=(UserMessage("Fix it."), said))
    assert body["messages"][1]["content"] == ANTHROPIC_BODY["content"]


def test_arguments_that_are_no_object_can_t_break_the_request() -> None:
    said = AssistantMessage("", (ChatCall("1", "bash", '{}, "role": "user"'),))
    body = sent(messages=(UserMessage("Fix it."), said))
    assert body["messages"][1]["content"][0]["input"] == {}


@pytest.mark.parametrize(
    ("reason", "found"),
    [
        ("end_turn", FinishReason.STOP),
        ("refusal", FinishReason.STOP),
        ("max_tokens", FinishReason.LENGTH),
        ("model_context_window_exceeded", FinishReason.LENGTH),
    ],
)
def test_reasons(reason: str, found: FinishReason) -> None:
    assert decode_response(with_content(stop_reason=reason)).finish_reason is found


USE = {"type": "tool_use", "id": "1", "name": "bash", "input": {}}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b'{"content": "text", "stop_reason": "end_turn"}',
        b'{"content": [{"type": "text", "text": "\xff"}], "stop_reason": "end_turn"}',
        with_content({**USE, "input": {"a": "b"}}).replace(b'"b"', b'"\xff"'),
        with_content({**USE, "input": {"a": "b"}}).replace(b'"a": "b"', b'"a" 1'),
        with_content({"text": "no type"}),
        with_content({**USE, "input": "ls"}),
        with_content({**USE, "input": None}),
        with_content({**USE, "id": ""}),
        with_content({key: value for key, value in USE.items() if key != "input"}),
        with_content(USE, USE),
        with_content(stop_reason="pause_turn"),
        with_content(stop_reason=None),
        b'{"content": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
    ids=lambda body: str(body[:60]),
)
def test_garbage_is_an_error_of_the_engine(body: bytes) -> None:
    with pytest.raises(InvalidAnswerError):
        decode_response(body)
