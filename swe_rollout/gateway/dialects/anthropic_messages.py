"""Anthropic's messages: `POST /v1/messages`, also with `?beta=true`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from swe_rollout.gateway.dialects.base import (
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
    role_of,
    text_of,
    tool,
)
from swe_rollout.gateway.dialects.fields import Fields
from swe_rollout.gateway.values import Answer, BadRequestError, Call, Finish, Request

_FIELDS: Final = Fields("messages")
_FINISH: Final = {Finish.STOP: "end_turn", Finish.CALLS: "tool_use", Finish.LENGTH: "max_tokens"}
_VOLATILE: Final = "x-anthropic-billing-header:"
"""Claude Code begins its system prompt with a block that says who pays: no part of the prompt."""
_KINDS: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
}


class _Block(Part):
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: str | list[_Block] | None = None


class _Message(msgspec.Struct, gc=False):
    role: str
    content: str | list[_Block] | None = None


class _Tool(msgspec.Struct):
    name: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    type: str | None = None


class _Choice(msgspec.Struct):
    type: str
    disable_parallel_tool_use: bool = False


class _Body(msgspec.Struct):
    messages: list[_Message]
    model: str | None = None
    system: str | list[_Block] | None = None
    tools: list[_Tool] | None = None
    tool_choice: _Choice | None = None
    max_tokens: Most | None = None
    stop_sequences: Stops | None = None
    stream: bool | None = None


class AnthropicMessages(Dialect):
    """Reads and writes messages."""

    ping = event({"type": "ping"}, name="ping")

    def read(self, body: bytes) -> Wanted:
        """Read a request. Raises BadRequestError."""
        found, unknown = decoded(body, _Body, _FIELDS)
        items = [*_system(found.system), *(i for m in found.messages for i in _items(m))]
        first, turns = conversation(items)
        tools, choice = found.tools or [], found.tool_choice or _Choice("auto")
        others = (f"the tool {e.type or e.name}" for e in tools if e.input_schema is None)
        request = Request(
            first,
            turns,
            tuple(
                tool(each.name or "", each.description, each.input_schema)
                for each in tools
                if each.input_schema is not None
            ),
            found.max_tokens,
            tuple(found.stop_sequences or ()),
            most_calls(choice.type, is_parallel=not (choice.disable_parallel_tool_use and tools)),
            (*unknown, *others),
        )
        return Wanted(request, found.model or "", bool(found.stream))

    def write(self, answer: Answer, wanted: Wanted) -> object:
        """Return the JSON body of a response."""
        return {
            **_head(answer, wanted),
            "content": _content(answer),
            **_end(answer),
            "usage": _usage(answer),
        }

    def events(self, answer: Answer, wanted: Wanted) -> Iterator[bytes]:
        """Yield a response as server-sent events."""
        begun = {
            **_head(answer, wanted),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": _usage(answer) | {"output_tokens": 0},
        }
        yield _event("message_start", message=begun)
        for index, block in enumerate(_content(answer)):
            empty, deltas = _streamed(block)
            yield _event("content_block_start", index=index, content_block=empty)
            for delta in deltas:
                yield _event("content_block_delta", index=index, delta=delta)
            yield _event("content_block_stop", index=index)
        usage = {"output_tokens": answer.completion_tokens}
        yield _event("message_delta", delta=_end(answer), usage=usage)
        yield _event("message_stop")

    def error(self, message: str, *, code: str, status: int) -> object:
        """Return the JSON body of an error."""
        kind = _KINDS.get(status, "api_error")
        if code == "context_length_exceeded":
            message = f"prompt is too long: {message}"
        return {"type": "error", "error": {"type": kind, "message": message}}

    def error_event(self, message: str, *, code: str, status: int) -> bytes:
        """Return the event by which a stream fails."""
        return event(self.error(message, code=code, status=status), name="error")


def _blocks(content: str | list[_Block] | None) -> list[_Block]:
    return content if isinstance(content, list) else [_Block("text", content or "")]


def _system(system: str | list[_Block] | None) -> Iterator[Item]:
    for block in _blocks(system):
        text = text_of([block])
        if not text.startswith(_VOLATILE):
            yield Item(Role.SYSTEM, text)


def _items(message: _Message) -> Iterator[Item]:
    role = role_of(message.role)
    for place, block in enumerate(_blocks(message.content)):
        match block.type:
            case "text":
                yield Item(role, block.text or "", is_more=place > 0)
            case "tool_use":
                arguments = msgspec.json.encode(block.input or {}).decode()
                yield Item(role, calls=(Call(block.id or "", block.name or "", arguments),))
            case "tool_result":
                yield Item(Role.TOOL, text_of(block.content), call_id=block.tool_use_id or "")
            case "thinking" | "redacted_thinking":
                continue
            case kind:
                raise BadRequestError(f"a block is {kind!r:.40}, and only text is understood")


def _head(answer: Answer, wanted: Wanted) -> dict[str, object]:
    return {
        "id": f"msg_{answer.id}",
        "type": "message",
        "role": "assistant",
        "model": wanted.model,
    }


def _end(answer: Answer) -> dict[str, object]:
    is_stopped = answer.stop and answer.finish is Finish.STOP
    reason = "stop_sequence" if is_stopped else _FINISH[answer.finish]
    return {"stop_reason": reason, "stop_sequence": answer.stop if is_stopped else None}


def _content(answer: Answer) -> list[dict[str, object]]:
    blocks: list[dict[str, object]] = []
    if answer.reasoning:
        blocks.append({"type": "thinking", "thinking": answer.reasoning, "signature": answer.id})
    if answer.text or not answer.calls:
        blocks.append({"type": "text", "text": answer.text})
    return blocks + [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.given}
        for call in answer.calls
    ]


def _streamed(block: dict[str, object]) -> tuple[dict[str, object], list[dict[str, object]]]:
    """Return a block without its content, and the deltas that bring it."""
    match block:
        case {"type": "thinking", "thinking": text, "signature": signature}:
            return block | {"thinking": "", "signature": ""}, [
                {"type": "thinking_delta", "thinking": text},
                {"type": "signature_delta", "signature": signature},
            ]
        case {"type": "tool_use", "input": values}:
            text = msgspec.json.encode(values).decode()
            return block | {"input": {}}, [{"type": "input_json_delta", "partial_json": text}]
        case _:
            return block | {"text": ""}, [{"type": "text_delta", "text": block["text"]}]


def _event(kind: str, **fields: object) -> bytes:
    return event({"type": kind, **fields}, name=kind)


def _usage(answer: Answer) -> dict[str, object]:
    return {
        "input_tokens": answer.prompt_tokens - answer.cached_tokens,
        "cache_read_input_tokens": answer.cached_tokens,
        "cache_creation_input_tokens": 0,
        "output_tokens": answer.completion_tokens,
    }
