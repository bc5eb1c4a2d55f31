"""OpenAI's chat completions, as SGLang and vLLM serve them: `POST /v1/chat/completions`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from swe_rollout.gateway.dialects.base import (
    ROLES,
    Dialect,
    Item,
    Most,
    Part,
    Role,
    Stops,
    Wanted,
    conversation,
    decoded,
    event,
    most_calls,
    openai_error,
    role_of,
    text_of,
    tool,
)
from swe_rollout.gateway.dialects.fields import Fields
from swe_rollout.gateway.values import Answer, BadRequestError, Call, Finish, Request

_FINISH: Final = {Finish.STOP: "stop", Finish.CALLS: "tool_calls", Finish.LENGTH: "length"}
_FIELDS: Final = Fields("chat")
_ROLES: Final = {**ROLES, "tool": Role.TOOL}


class _Called(msgspec.Struct, gc=False):
    name: str
    arguments: str | dict[str, Any] | None = None


class _Call(msgspec.Struct, gc=False):
    function: _Called
    id: str | None = None


class _Message(msgspec.Struct, gc=False):
    role: str
    content: str | list[Part] | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None
    function_call: object = None


class _Function(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class _Tool(msgspec.Struct):
    type: str = "function"
    function: _Function | None = None


class _Choice(msgspec.Struct):
    type: str


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _Body(msgspec.Struct):
    messages: list[_Message]
    model: str | None = None
    tools: list[_Tool] | None = None
    tool_choice: str | _Choice | None = None
    parallel_tool_calls: bool | None = None
    max_tokens: Most | None = None
    max_completion_tokens: Most | None = None
    stop: str | Stops | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None


class OpenaiChat(Dialect):
    """Reads and writes chat completions."""

    def read(self, body: bytes) -> Wanted:
        """Read a request. Raises BadRequestError."""
        found, unknown = decoded(body, _Body, _FIELDS)
        first, turns = conversation(_item(message) for message in found.messages)
        tools = found.tools or []
        stop, choice = found.stop or (), found.tool_choice
        request = Request(
            first,
            turns,
            tuple(
                tool(f.name, f.description, f.parameters)
                for each in tools
                if (f := each.function) is not None
            ),
            found.max_completion_tokens or found.max_tokens,
            (stop,) if isinstance(stop, str) else tuple(stop),
            most_calls(
                choice.type if isinstance(choice, _Choice) else choice,
                is_parallel=found.parallel_tool_calls is not False or not tools,
            ),
            (*unknown, *(f"the tool {each.type}" for each in tools if each.function is None)),
        )
        options = found.stream_options
        return Wanted(
            request,
            found.model or "",
            bool(found.stream),
            counts=bool(options and options.include_usage),
        )

    def write(self, answer: Answer, wanted: Wanted) -> object:
        """Return the JSON body of a response."""
        message: dict[str, object] = {"role": "assistant", "content": answer.text or None}
        if answer.reasoning:
            message["reasoning_content"] = answer.reasoning
        if answer.calls:
            message["tool_calls"] = [_written(call) for call in answer.calls]
        choice = {"index": 0, "message": message, "finish_reason": _FINISH[answer.finish]}
        return {
            **_head(answer, wanted, "chat.completion"),
            "choices": [choice | {"logprobs": None}],
            "usage": _usage(answer),
        }

    def events(self, answer: Answer, wanted: Wanted) -> Iterator[bytes]:
        """Yield a response as server-sent events."""
        head = _head(answer, wanted, "chat.completion.chunk")

        def chunk(delta: dict[str, object], finish: str | None = None) -> bytes:
            return event(
                {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
            )

        yield chunk({"role": "assistant", "content": ""})
        if answer.reasoning:
            yield chunk({"reasoning_content": answer.reasoning})
        if answer.text:
            yield chunk({"content": answer.text})
        for index, call in enumerate(answer.calls):
            yield chunk({"tool_calls": [{"index": index, **_written(call)}]})
        yield chunk({}, _FINISH[answer.finish])
        if wanted.counts:
            yield event({**head, "choices": [], "usage": _usage(answer)})
        yield b"data: [DONE]\n\n"

    def error(self, message: str, *, code: str, status: int) -> object:
        """Return the JSON body of an error."""
        return openai_error(message, code=code, status=status)


def _item(message: _Message) -> Item:
    role = role_of(message.role, _ROLES)
    if message.function_call is not None:
        raise BadRequestError("`function_call` of a message was replaced by `tool_calls`")
    calls = tuple(
        Call(call.id or "", call.function.name, _arguments(call.function.arguments))
        for call in message.tool_calls or ()
    )
    return Item(role, text_of(message.content, role), calls, message.tool_call_id or "")


def _arguments(given: str | dict[str, Any] | None) -> str:
    if given is None:
        return ""
    return given if isinstance(given, str) else msgspec.json.encode(given).decode()


def _written(call: Call) -> dict[str, object]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _head(answer: Answer, wanted: Wanted, kind: str) -> dict[str, object]:
    return {
        "id": f"chatcmpl-{answer.id}",
        "object": kind,
        "created": answer.created,
        "model": wanted.model,
    }


def _usage(answer: Answer) -> dict[str, object]:
    return {
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.completion_tokens,
        "total_tokens": answer.prompt_tokens + answer.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": answer.cached_tokens},
    }
