"""OpenAI's chat completions as pure functions over bytes, and as plain messages.

Many servers speak this format: vLLM, SGLang, llama.cpp, Ollama, gateways. `openai_messages` and
`openai_tools` give it to a user's own function. No connection here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from swe_rollout.engine.chat.base import (
    AssistantMessage,
    ChatCall,
    ChatMessage,
    ChatRequest,
    ChatResponse,
    ChatUsage,
    ToolResults,
    UserMessage,
)
from swe_rollout.engine.chat.errors import Tokens, checked_calls, decode, finish_reason
from swe_rollout.engine.errors import InvalidAnswerError
from swe_rollout.types.turn import FinishReason

_REASONS: Final = {
    "stop": FinishReason.STOP,
    "tool_calls": FinishReason.STOP,
    "content_filter": FinishReason.STOP,
    "length": FinishReason.LENGTH,
}


class _Function(msgspec.Struct, frozen=True):
    name: str
    arguments: str


class _Call(msgspec.Struct, frozen=True):
    id: str
    function: _Function


class _Message(msgspec.Struct, frozen=True):
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct, frozen=True):
    message: _Message
    finish_reason: str | None = None


class _PromptDetails(msgspec.Struct, frozen=True):
    cached_tokens: Tokens | None = None


class _Usage(msgspec.Struct, frozen=True):
    prompt_tokens: Tokens = 0
    completion_tokens: Tokens = 0
    prompt_tokens_details: _PromptDetails | None = None


class _Body(msgspec.Struct, frozen=True):
    choices: list[_Choice]
    model: str | None = None
    usage: _Usage | None = None


_DECODER = msgspec.json.Decoder(_Body)


def encode_request(request: ChatRequest, *, model: str, max_tokens_field: str) -> bytes:
    """Encode a call. OpenAI's API lacks `topK` and `minP`: they are sent only if set."""
    sampling = request.sampling
    body: dict[str, object] = {
        "model": model,
        "messages": openai_messages(request),
        max_tokens_field: request.max_new_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
    }
    set_only = {
        "tools": openai_tools(request) if request.tools else None,
        "top_k": sampling.top_k if sampling.top_k != -1 else None,
        "min_p": sampling.min_p or None,
        "seed": sampling.seed,
    }
    body |= {name: value for name, value in set_only.items() if value is not None}
    return msgspec.json.encode(body)


def openai_messages(request: ChatRequest) -> list[dict[str, object]]:
    """Return the conversation as OpenAI's messages, the system message first."""
    system: dict[str, object] = {"role": "system", "content": request.system}
    first = [system] if request.system else []
    return [*first, *(each for message in request.messages for each in _written(message))]


def openai_tools(request: ChatRequest) -> list[dict[str, object]]:
    """Return the tools in OpenAI's function form."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
            },
        }
        for tool in request.tools
    ]


def decode_response(body: bytes) -> ChatResponse:
    """Decode the body of a 200, using its first choice. Raises EngineError."""
    found = decode(_DECODER, body)
    if not found.choices:
        raise InvalidAnswerError("the API's response has no choice")
    choice, usage = found.choices[0], found.usage or _Usage()
    message, details = choice.message, usage.prompt_tokens_details
    calls = [
        ChatCall(c.id, c.function.name, c.function.arguments) for c in message.tool_calls or ()
    ]
    return ChatResponse(
        AssistantMessage(
            text=message.content or message.refusal or "",
            calls=checked_calls(calls),
            reasoning=message.reasoning_content or "",
        ),
        finish_reason(choice.finish_reason, _REASONS),
        ChatUsage(
            usage.prompt_tokens,
            usage.completion_tokens,
            (details.cached_tokens or 0) if details else 0,
        ),
        model=(found.model or "")[:256],
    )


def _written(message: ChatMessage) -> Iterator[dict[str, object]]:
    match message:
        case UserMessage(text):
            yield {"role": "user", "content": text}
        case AssistantMessage(text, calls):
            written = {"tool_calls": [_called(call) for call in calls]} if calls else {}
            yield {"role": "assistant", "content": text, **written}
        case ToolResults(results):
            for result in results:
                yield {"role": "tool", "tool_call_id": result.call_id, "content": result.text}


def _called(call: ChatCall) -> dict[str, object]:
    function = {"name": _name(call.name), "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _name(name: str) -> str:
    # The API rejects a whole conversation for one invalid name, whoever wrote it.
    return name if re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) else "invalid"
