"""Google's `generateContent` and `streamGenerateContent`, the API that Gemini CLI speaks."""

from __future__ import annotations

import re
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from swe_rollout.gateway.dialects.base import (
    Dialect,
    Item,
    Most,
    Role,
    Stops,
    Wanted,
    conversation,
    decoded,
    event,
    most_calls,
    role_of,
    tool,
)
from swe_rollout.gateway.dialects.fields import Fields
from swe_rollout.gateway.values import Answer, BadRequestError, Call, Finish, Request

_FIELDS: Final = Fields("google")
_SNAKE: Final = tuple(
    f'"{name}"'.encode()
    for name in (
        "system_instruction",
        "generation_config",
        "tool_config",
        "function_declarations",
        "function_call",
        "function_response",
        "function_calling_config",
    )
)
"""Google's servers take the names of its protocol buffers too, as its pages have them."""
_FREE: Final = {"args", "response", "parameters", "parametersJsonSchema"}
"""What these hold is the harness's own."""
_ROLES: Final = {"user": Role.USER, "function": Role.USER, "model": Role.POLICY}
_STATUS: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}


class _Called(msgspec.Struct, gc=False):
    name: str
    id: str | None = None
    args: dict[str, Any] | None = None


class _Response(msgspec.Struct, gc=False):
    name: str
    id: str | None = None
    response: dict[str, Any] | None = None


class _Part(msgspec.Struct, gc=False):
    text: str | None = None
    thought: bool | None = None
    functionCall: _Called | None = None
    functionResponse: _Response | None = None


class _Content(msgspec.Struct, gc=False):
    parts: list[_Part] | None = None
    role: str | None = None


class _Function(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    parametersJsonSchema: dict[str, Any] | None = None


class _Tool(msgspec.Struct):
    functionDeclarations: list[_Function] | None = None


class _Config(msgspec.Struct):
    maxOutputTokens: Most | None = None
    stopSequences: Stops | None = None


class _Calling(msgspec.Struct):
    mode: str | None = None
    allowedFunctionNames: list[str] | None = None


class _ToolConfig(msgspec.Struct):
    functionCallingConfig: _Calling | None = None


class _Body(msgspec.Struct):
    contents: list[_Content]
    systemInstruction: _Content | None = None
    tools: list[_Tool] | None = None
    toolConfig: _ToolConfig | None = None
    generationConfig: _Config | None = None


class GoogleGenerate(Dialect):
    """Reads and writes contents; whether a request streams, and its model, are in its address."""

    ping = b"\n"
    """Blank: Google's clients know no comments, and take one for a broken response."""

    def read(self, body: bytes) -> Wanted:
        """Read a request. Raises BadRequestError."""
        found, unknown = decoded(body, _Body, _FIELDS, renamed=_camelled)
        config = found.generationConfig or _Config()
        system = found.systemInstruction
        items = [Item(Role.SYSTEM, _text(system))] if system else []
        first, turns = conversation([*items, *_items(found.contents)])
        tools = found.tools or []
        request = Request(
            first,
            turns,
            tuple(
                tool(f.name, f.description, f.parametersJsonSchema or _lowered(f.parameters))
                for each in tools
                for f in each.functionDeclarations or ()
            ),
            config.maxOutputTokens,
            tuple(config.stopSequences or ()),
            _most_calls(found.toolConfig),
            (
                *unknown,
                *("a tool that is no function" for e in tools if not e.functionDeclarations),
            ),
        )
        return Wanted(request, "", streams=False)

    def write(self, answer: Answer, wanted: Wanted) -> object:
        """Return the JSON body of a response."""
        reason = "MAX_TOKENS" if answer.finish is Finish.LENGTH else "STOP"
        return {
            "candidates": [
                {
                    "content": {"role": "model", "parts": _parts(answer)},
                    "finishReason": reason,
                    "index": 0,
                }
            ],
            "usageMetadata": {
                "promptTokenCount": answer.prompt_tokens,
                "candidatesTokenCount": answer.completion_tokens,
                "totalTokenCount": answer.prompt_tokens + answer.completion_tokens,
                "cachedContentTokenCount": answer.cached_tokens,
            },
            "modelVersion": wanted.model,
            "responseId": answer.id,
        }

    def events(self, answer: Answer, wanted: Wanted) -> Iterator[bytes]:
        """Yield a response as server-sent events."""
        yield event(self.write(answer, wanted))

    def error(self, message: str, *, code: str, status: int) -> object:
        """Return the JSON body of an error."""
        del code
        found = _STATUS.get(status, "INTERNAL")
        return {"error": {"code": status, "message": message, "status": found}}


def _camelled(body: bytes) -> bytes:
    """Return a body with the names that its API's JSON has."""
    if not any(name in body for name in _SNAKE):
        return body
    return msgspec.json.encode(_renamed(msgspec.json.decode(body)))


def _renamed(value: Any) -> Any:
    match value:
        case dict():
            names = {key: re.sub("_([a-z])", lambda at: at[1].upper(), key) for key in value}
            return {
                names[key]: each if names[key] in _FREE else _renamed(each)
                for key, each in value.items()
            }
        case list():
            return [_renamed(each) for each in value]
        case _:
            return value


def _most_calls(config: _ToolConfig | None) -> int | None:
    calling = (config and config.functionCallingConfig) or _Calling()
    if calling.allowedFunctionNames:
        return most_calls("one of allowedFunctionNames")
    mode = (calling.mode or "auto").lower()
    return most_calls("auto" if mode == "mode_unspecified" else mode)


def _items(contents: list[_Content]) -> Iterator[Item]:
    """Yield the parts. Results go by the ids that a client gives calls, or by names and order."""
    waiting = defaultdict[str, OrderedDict[str, str]](OrderedDict)
    made, before = 0, Role.USER
    for content in contents:
        role = role_of(content.role or "user", _ROLES)
        if role is Role.POLICY and before is Role.USER:
            waiting.clear()  # Calls that nothing answered have no results in later turns.
        before = role
        for at, part in enumerate(content.parts or ()):
            match part:
                case _Part(functionCall=_Called() as call):
                    made += 1
                    place, same = f"place-{made}", waiting[call.name]
                    same[place if not call.id or call.id in same else call.id] = place
                    text = msgspec.json.encode(call.args or {}).decode()
                    yield Item(role, calls=(Call(place, call.name, text),))
                case _Part(functionResponse=_Response() as result):
                    same = waiting[result.name]
                    if not same:
                        raise BadRequestError(f"nothing called {result.name!r:.60} before")
                    place = same.pop(result.id or "", "") or same.popitem(last=False)[1]
                    yield Item(Role.TOOL, _result(result), call_id=place)
                case _Part(thought=True):
                    continue
                case _Part(text=str() as text):
                    yield Item(role, text, is_more=at > 0)
                case _:
                    raise BadRequestError("a part is neither text nor a call nor its result")


def _result(result: _Response) -> str:
    """Return the text of a result; an object of anything else is JSON."""
    match result.response:
        case {"output": str() as text, **others} if not others:
            return text
        case found:
            return msgspec.json.encode(found or {}).decode()


def _text(content: _Content) -> str:
    parts = content.parts or ()
    if any(part.text is None for part in parts):
        raise BadRequestError("a part of the system's instruction is no text")
    return "\n\n".join(part.text or "" for part in parts)


def _lowered(schema: Any) -> Any:
    """Return a schema with its types as JSON schema spells them: this API has them in capitals."""
    match schema:
        case dict():
            return {
                key: each.lower() if key == "type" and isinstance(each, str) else _lowered(each)
                for key, each in schema.items()
            }
        case list():
            return [_lowered(each) for each in schema]
        case _:
            return schema


def _parts(answer: Answer) -> list[dict[str, object]]:
    parts: list[dict[str, object]] = []
    if answer.reasoning:
        parts.append({"text": answer.reasoning, "thought": True})
    if answer.text or not answer.calls:
        parts.append({"text": answer.text})
    return parts + [
        {"functionCall": {"name": call.name, "args": call.given, "id": call.id}}
        for call in answer.calls
    ]
