"""Bodies as clients send them: what they cost, and what they mean."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import msgspec
import pytest

from swe_rollout.gateway.dialects import base
from swe_rollout.gateway.dialects.anthropic_messages import AnthropicMessages
from swe_rollout.gateway.dialects.base import Dialect
from swe_rollout.gateway.dialects.google_generate import GoogleGenerate
from swe_rollout.gateway.dialects.openai_chat import OpenaiChat
from swe_rollout.gateway.dialects.openai_responses import OpenaiResponses
from swe_rollout.gateway.values import BadRequestError, Told

USER = {"role": "user", "content": "a"}
POLICY = {"role": "assistant", "content": "a"}
RESULT = {"role": "tool", "tool_call_id": "a"}


@pytest.mark.parametrize("each", [USER, RESULT])
def test_a_turn_is_not_copied_for_all_that_follows_it(
    each: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Told] = []

    def counted(*args: Any) -> Told:
        made.append(Told(*args))
        return made[-1]

    monkeypatch.setattr(base, "Told", counted)
    body = msgspec.json.encode({"messages": [USER, POLICY, *[each] * 100]})
    (turn,) = OpenaiChat().read(body).request.turns
    assert made == [turn]
    assert len(turn.results) == 100 or turn.message.count("a") == 100


def test_results_find_their_calls_without_a_search() -> None:
    def lines(size: int) -> int:
        calls = [{"functionCall": {"name": f"f{at}"}} for at in range(size)]
        results = [{"functionResponse": {"name": f"f{at}"}} for at in reversed(range(size))]
        contents = [{"parts": [{"text": "a"}]}, {"role": "model", "parts": calls}]
        body = msgspec.json.encode({"contents": [*contents, {"parts": results}]})
        run = 0

        def count(frame: FrameType, event: str, arg: object) -> Any:
            nonlocal run
            del frame, arg
            run += event == "line"
            return count

        before = sys.gettrace()
        sys.settrace(count)
        try:
            GoogleGenerate().read(body)
        finally:
            sys.settrace(before)
        return run

    assert lines(800) < 6 * lines(200)


CALLED = {"id": None, "type": "function", "function": {"name": "f", "arguments": None}}


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        (
            OpenaiChat(),
            {
                "messages": [
                    {"role": "developer", "content": []},
                    {"role": "user", "content": "a", "name": None},
                    {"role": "assistant", "content": None, "tool_calls": [CALLED]},
                    {"role": "tool", "tool_call_id": None, "content": None},
                ],
                "tools": [{"function": {"name": "f", "description": None, "parameters": None}}],
                "stop": None,
                "n": None,
                "max_tokens": None,
            },
        ),
        (
            OpenaiResponses(),
            {
                "input": [
                    {"type": None, "role": "user", "content": "a"},
                    {"type": "reasoning", "role": None, "name": None, "content": None},
                    {"type": "function_call", "call_id": None, "name": "f", "arguments": None},
                    {"type": "function_call_output", "call_id": None, "output": None},
                ],
                "tools": [{"type": "function", "name": "f", "parameters": None}],
                "instructions": None,
            },
        ),
        (
            AnthropicMessages(),
            {
                "messages": [
                    {"role": "user", "content": [{"type": "text", "text": "a", "id": None}]},
                    {"role": "assistant", "content": [{"type": "tool_use", "name": "f"}]},
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": None}]},
                    {"role": "user", "content": None},
                ],
                "tools": [{"name": "f", "description": None, "input_schema": {}}],
                "system": None,
            },
        ),
        (
            GoogleGenerate(),
            {
                "contents": [
                    {"role": None, "parts": [{"text": "a"}]},
                    {"role": "model", "parts": [{"functionCall": {"name": "f", "id": None}}]},
                    {"parts": [{"functionResponse": {"name": "f", "id": None}}]},
                    {"parts": None},
                ],
                "tools": [{"functionDeclarations": [{"name": "f", "description": None}]}],
                "systemInstruction": {"parts": None, "role": None},
            },
        ),
    ],
    ids=["chat", "responses", "messages", "google"],
)
def test_null_is_what_is_absent(dialect: Dialect, body: dict[str, object]) -> None:
    request = dialect.read(msgspec.json.encode(body | {"model": None, "stream": None})).request
    assert [message.content for message in request.first] == ["a"]
    ((call,),) = [turn.calls for turn in request.turns]
    assert (call.name, call.values) == ("f", {})
    assert [result.id for result in request.turns[0].results] == [call.id]
    assert [spec.name for spec in request.tools] == ["f"]
    without = msgspec.json.encode(
        {"model": None, "tools": None} | {k: body[k] for k in [*body][:1]}
    )
    assert dialect.read(without).request.turns == request.turns


def test_results_of_google_go_by_the_ids_that_a_client_made_or_by_their_order() -> None:
    def results(*ids: str | None) -> list[str]:
        calls = [{"functionCall": {"name": "f", "id": each}} for each in ("a", "b", "b", None)]
        told = [
            {"functionResponse": {"name": "f", "id": each, "response": {"output": f"{at}"}}}
            for at, each in enumerate(ids)
        ]
        contents = [{"parts": [{"text": "a"}]}, {"role": "model", "parts": calls}]
        body = msgspec.json.encode({"contents": [*contents, {"parts": told}]})
        (turn,) = GoogleGenerate().read(body).request.turns
        found = {result.id: result.text for result in turn.results}
        return [found[call.id] for call in turn.calls]

    assert results(None, None, None, None) == ["0", "1", "2", "3"]
    assert results("b", "a", None, "c") == ["1", "0", "2", "3"]


def test_a_call_that_nothing_answered_takes_no_result_of_a_later_turn() -> None:
    call, text = {"functionCall": {"name": "f"}}, {"text": "a"}
    result = {"functionResponse": {"name": "f", "response": {"output": "1"}}}
    parts = [("user", text), ("model", call), ("user", text), ("model", call), ("user", result)]
    body = {"contents": [{"role": role, "parts": [part]} for role, part in parts]}
    first, second = GoogleGenerate().read(msgspec.json.encode(body)).request.turns
    assert not first.results
    assert [each.id for each in second.results] == [call.id for call in second.calls]


def test_clients_of_google_can_wait() -> None:
    # They read `data:` and blank lines; anything else is to them a response that they can't parse.
    assert not GoogleGenerate.ping.strip()


def test_a_response_that_fails_late_was_created_first() -> None:
    stream = OpenaiResponses().error_event("over", code="episode_over", status=403).decode()
    events = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: ")]
    assert [each["type"] for each in events] == ["response.created", "response.failed"]
    assert [each["sequence_number"] for each in events] == [0, 1]
    assert events[1]["response"]["error"] == {"code": "episode_over", "message": "over"}


def _chat(*messages: list[str]) -> dict[str, object]:
    parts = [[{"type": "text", "text": text} for text in texts] for texts in messages]
    return {"messages": [USER, *({"role": "assistant", "content": each} for each in parts)]}


def _responses(*messages: list[str]) -> dict[str, object]:
    parts = [[{"type": "output_text", "text": text} for text in texts] for texts in messages]
    return {"input": [USER, *({"role": "assistant", "content": each} for each in parts)]}


def _google(*messages: list[str]) -> dict[str, object]:
    parts = [[{"text": text} for text in texts] for texts in (["a"], *messages)]
    roles = ("user", *("model" for _ in messages))
    return {"contents": [{"role": r, "parts": p} for r, p in zip(roles, parts, strict=True)]}


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        (OpenaiChat(), _chat),
        (OpenaiResponses(), _responses),
        (AnthropicMessages(), _chat),
        (GoogleGenerate(), _google),
    ],
    ids=["chat", "responses", "messages", "google"],
)
def test_an_answer_has_one_text_however_it_is_split_and_a_second_one_is_another(
    dialect: Dialect, body: Callable[..., dict[str, object]]
) -> None:
    turns = dialect.read(
        msgspec.json.encode(body(["I lo", "ok."], [], ["I see", "."]))
    ).request.turns
    assert [turn.text for turn in turns] == ["I look.", "I see."]


def test_a_text_and_its_calls_are_one_answer_also_as_messages_of_their_own() -> None:
    calls = {"role": "assistant", "tool_calls": [CALLED]}
    messages = [USER, {"role": "assistant", "content": "I look."}, calls, calls, POLICY]
    first, second = OpenaiChat().read(msgspec.json.encode({"messages": messages})).request.turns
    assert (first.text, len(first.calls)) == ("I look.", 2)
    assert (second.text, second.calls) == ("a", ())


@pytest.mark.parametrize(
    "body",
    [
        {"contents": [{"role": "system", "parts": [{"text": "a"}]}]},
        {
            "contents": [{"parts": [{"text": "a"}]}],
            "systemInstruction": {"parts": [{"inlineData": {"data": ""}}]},
        },
    ],
)
def test_what_google_has_no_place_for_is_refused(body: dict[str, object]) -> None:
    with pytest.raises(BadRequestError):
        GoogleGenerate().read(msgspec.json.encode(body))
