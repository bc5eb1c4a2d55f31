"""OpenAI's responses: `POST /v1/responses`, the API that Codex speaks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any, Final

import msgspec

from swe_rollout.gateway.dialects.base import (
    Dialect,
    Item,
    Most,
    Part,
    Role,
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

_FIELDS: Final = Fields("responses")


class _Item(msgspec.Struct, gc=False):
    type: str | None = None
    role: str | None = None
    content: str | list[Part] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    input: str | None = None
    output: str | list[Part] | None = None


class _Tool(msgspec.Struct):
    type: str = "function"
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None


class _Choice(msgspec.Struct):
    type: str


class _Body(msgspec.Struct):
    input: str | list[_Item]
    model: str | None = None
    instructions: str | None = None
    tools: list[_Tool] | None = None
    tool_choice: str | _Choice | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: Most | None = None
    stream: bool | None = None


class OpenaiResponses(Dialect):
    """Reads and writes responses."""

    def read(self, body: bytes) -> Wanted:
        """Read a request. Raises BadRequestError."""
        found, unknown = decoded(body, _Body, _FIELDS)
        items = [Item(Role.SYSTEM, found.instructions)] if found.instructions else []
        if isinstance(found.input, str):
            items.append(Item(Role.USER, found.input))
        else:
            items += [item for each in found.input for item in _items(each)]
        first, turns = conversation(items)
        tools, choice = found.tools or [], found.tool_choice
        others = (f"the tool {each.type}" for each in tools if each.type != "function")
        request = Request(
            first,
            turns,
            tuple(
                tool(f.name or "", f.description, f.parameters)
                for f in tools
                if f.type == "function"
            ),
            found.max_output_tokens,
            most_calls=most_calls(
                choice.type if isinstance(choice, _Choice) else choice,
                is_parallel=found.parallel_tool_calls is not False or not tools,
            ),
            ignored=(*unknown, *others),
        )
        return Wanted(request, found.model or "", bool(found.stream))

    def write(self, answer: Answer, wanted: Wanted) -> object:
        """Return the JSON body of a response."""
        is_cut = answer.finish is Finish.LENGTH
        return {
            **_head(answer, wanted, "incomplete" if is_cut else "completed"),
            "output": _output(answer),
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "usage": {
                "input_tokens": answer.prompt_tokens,
                "input_tokens_details": {
                    "cached_tokens": answer.cached_tokens,
                    "cache_write_tokens": 0,
                },
                "output_tokens": answer.completion_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": answer.prompt_tokens + answer.completion_tokens,
            },
        }

    def events(self, answer: Answer, wanted: Wanted) -> Iterator[bytes]:
        """Yield a response as server-sent events."""
        numbers = count()

        def told(kind: str, **fields: object) -> bytes:
            return event({"type": kind, "sequence_number": next(numbers), **fields}, name=kind)

        begun = {**_head(answer, wanted, "in_progress"), "output": []}
        yield told("response.created", response=begun)
        yield told("response.in_progress", response=begun)
        for index, item in enumerate(_output(answer)):
            place = {"output_index": index, "item_id": item["id"]}
            yield told("response.output_item.added", output_index=index, item=_emptied(item))
            match item:
                case {"type": "message", "content": [{"text": str() as text} as part]}:
                    place["content_index"] = 0
                    yield told("response.content_part.added", **place, part=_part(""))
                    yield told("response.output_text.delta", **place, delta=text, logprobs=[])
                    yield told("response.output_text.done", **place, text=text, logprobs=[])
                    yield told("response.content_part.done", **place, part=part)
                case {"type": "function_call", "arguments": text}:
                    yield told("response.function_call_arguments.delta", **place, delta=text)
                    yield told("response.function_call_arguments.done", **place, arguments=text)
                case {"type": "reasoning", "summary": [{"text": text} as part]}:
                    place["summary_index"] = 0
                    yield told("response.reasoning_summary_part.added", **place, part=part)
                    yield told("response.reasoning_summary_text.delta", **place, delta=text)
                    yield told("response.reasoning_summary_text.done", **place, text=text)
                case _:
                    pass
            yield told("response.output_item.done", output_index=index, item=item)
        last = "incomplete" if answer.finish is Finish.LENGTH else "completed"
        yield told(f"response.{last}", response=self.write(answer, wanted))

    def error(self, message: str, *, code: str, status: int) -> object:
        """Return the JSON body of an error."""
        return openai_error(message, code=code, status=status)

    def error_event(self, message: str, *, code: str, status: int) -> bytes:
        """Return the event by which a stream fails."""
        del status
        begun = {"id": "resp_failed", "object": "response", "status": "in_progress", "output": []}
        failed = begun | {"status": "failed", "error": {"code": code, "message": message}}
        # Clients take no other event for the first.
        return b"".join(
            event({"type": kind, "sequence_number": at, "response": response}, name=kind)
            for at, (kind, response) in enumerate(
                (("response.created", begun), ("response.failed", failed))
            )
        )


def _items(item: _Item) -> Iterator[Item]:
    match item.type:
        case "message" | None:
            role = role_of(item.role)
            yield Item(role, text_of(item.content, role))
        case "function_call" | "custom_tool_call":
            call = Call(item.call_id or "", item.name or "", item.arguments or item.input or "")
            yield Item(Role.POLICY, calls=(call,))
        case "function_call_output" | "custom_tool_call_output":
            yield Item(Role.TOOL, text_of(item.output), call_id=item.call_id or "")
        case "reasoning":
            return
        case kind:
            raise BadRequestError(
                f"an item of the input is {kind!r:.40}, which has no meaning here"
            )


def _head(answer: Answer, wanted: Wanted, status: str) -> dict[str, object]:
    most = wanted.request.most_calls
    return {
        "id": f"resp_{answer.id}",
        "object": "response",
        "created_at": answer.created,
        "status": status,
        "model": wanted.model,
        "error": None,
        "parallel_tool_calls": most is None,
        "tool_choice": "none" if most == 0 else "auto",
        "tools": [],
    }


def _output(answer: Answer) -> list[dict[str, object]]:
    items: list[dict[str, object]] = []
    if answer.reasoning:
        summary = [{"type": "summary_text", "text": answer.reasoning}]
        items.append({"type": "reasoning", "id": f"rs_{answer.id}", "summary": summary})
    if answer.text or not answer.calls:
        items.append(
            {
                "type": "message",
                "id": f"msg_{answer.id}",
                "role": "assistant",
                "status": "completed",
                "content": [_part(answer.text)],
            }
        )
    items += [
        {
            "type": "function_call",
            "id": f"fc_{call.id}",
            "call_id": call.id,
            "name": call.name,
            "arguments": call.arguments,
            "status": "completed",
        }
        for call in answer.calls
    ]
    return items


def _part(text: str) -> dict[str, object]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _emptied(item: dict[str, object]) -> dict[str, object]:
    """Return an item as it is before its content comes."""
    empty: dict[str, object] = {"content": [], "arguments": "", "summary": []}
    begun = {key: empty.get(key, value) for key, value in item.items()}
    return begun | ({"status": "in_progress"} if "status" in item else {})
