"""OpenAI's chat completions: what is sent, and what is read from recorded shapes."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_rollout.engine.chat.base import ChatCall, ChatUsage
from swe_rollout.engine.chat.openai import decode_response, encode_request
from swe_rollout.engine.errors import InvalidAnswerError, UnavailableError
from swe_rollout.errors import EngineError
from swe_rollout.spec.policy import Sampling
from swe_rollout.types.turn import FinishReason
from unit.engine.chat.chat_parts import BASH, OPENAI_BODY, request


def sent(sampling: Sampling | None = None) -> dict[str, Any]:
    body = json.loads(
        encode_request(
            request(sampling=sampling), model="m", max_tokens_field="max_completion_tokens"
        )
    )
    assert isinstance(body, dict)
    return body


def with_message(**fields: object) -> bytes:
    message = {"role": "assistant", "content": "", **fields}
    return json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode()


def test_a_conversation_is_sent_in_openai_s_form() -> None:
    body = sent()
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Fix it."},
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "bash", "arguments": '{"command": "ls"}'},
                },
                # A name that the API would refuse the whole conversation for.
                {
                    "id": "c2",
                    "type": "function",
                    "function": {"name": "invalid", "arguments": "{}"},
                },
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "README.md"},
        {"role": "tool", "tool_call_id": "c2", "content": "no such tool"},
    ]
    assert body["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "bash",
                "description": "Run a command.",
                "parameters": dict(BASH.parameters),
            },
        }
    ]
    assert (body["model"], body["max_completion_tokens"]) == ("m", 100)


def test_sampling_is_sent_and_extras_only_where_they_are_set() -> None:
    assert sent().keys() == {
        "model", "messages", "max_completion_tokens", "temperature", "top_p", "tools",
    }  # fmt: skip
    body = sent(Sampling(temperature=0.5, top_p=0.9, top_k=20, min_p=0.1, seed=7))
    assert {name: body[name] for name in ("temperature", "top_p", "top_k", "min_p", "seed")} == {
        "temperature": 0.5, "top_p": 0.9, "top_k": 20, "min_p": 0.1, "seed": 7,
    }  # fmt: skip


def test_a_recorded_response_is_read() -> None:
    found = decode_response(json.dumps(OPENAI_BODY).encode())
    assert found.message.text == "I look around."
    assert found.message.calls == (
        ChatCall("call_DdmO9pD3xa9XTPNJ32zg2hcA", "bash", '{"command":"ls"}'),
    )
    assert found.finish_reason is FinishReason.STOP
    assert found.usage == ChatUsage(1117, 46, 1024)
    assert found.model == "gpt-4o-2024-08-06"


def test_a_message_of_a_small_server_is_read() -> None:
    body = {"choices": [{"message": {"content": None}, "finish_reason": "length"}]}
    found = decode_response(json.dumps(body).encode())
    assert (found.message.text, found.finish_reason) == ("", FinishReason.LENGTH)
    assert found.usage == ChatUsage()


def test_reasoning_and_refusals_are_text_for_people() -> None:
    found = decode_response(with_message(content=None, refusal="No.", reasoning_content="Hm."))
    assert (found.message.text, found.message.reasoning) == ("No.", "Hm.")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>busy</html>",
        b"null",
        b"[]",
        b"{}",
        b'{"choices": []}',
        b'{"choices": [{}]}',
        b'{"choices": [{"message": {"content": "\xff"}, "finish_reason": "stop"}]}',
        b'{"choices": [{"message": {"content": 1}, "finish_reason": "stop"}]}',
        b'{"choices": [{"message": {"content": ""}, "finish_reason": "bored"}]}',
        b'{"choices": [{"message": {"content": ""}, "finish_reason": null}]}',
        b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        with_message(tool_calls=[{"id": "1", "function": {"name": "bash", "arguments": {}}}]),
        with_message(tool_calls=[{"id": "", "function": {"name": "bash", "arguments": "{}"}}]),
        with_message(tool_calls=[{"id": "1", "function": {"name": "b", "arguments": ""}}] * 2),
        with_message(
            tool_calls=[
                {"id": str(n), "function": {"name": "b", "arguments": ""}} for n in range(5000)
            ]
        ),
    ],
    ids=lambda body: str(body[:40]),
)
def test_garbage_is_an_error_of_the_engine(body: bytes) -> None:
    with pytest.raises(InvalidAnswerError):
        decode_response(body)


def test_an_error_inside_a_200_is_that_error() -> None:
    with pytest.raises(UnavailableError):
        decode_response(b'{"error": {"message": "slow down", "code": 429}}')


@given(
    st.recursive(
        st.none() | st.integers() | st.text(),
        lambda v: (
            st.lists(v)
            | st.dictionaries(
                st.sampled_from(
                    ["choices", "message", "content", "tool_calls", "finish_reason", "usage"]
                ),
                v,
            )
        ),
    )
)
def test_no_json_raises_anything_but_an_engine_error(value: object) -> None:
    with suppress(EngineError):
        decode_response(msgspec.json.encode(value))
