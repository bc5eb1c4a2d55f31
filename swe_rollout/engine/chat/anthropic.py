"""Anthropic's messages as pure functions over bytes, without a connection.

The policy's messages are sent back in exactly the blocks in which they arrived: the signatures of
its reasoning are valid for these alone.
"""

from __future__ import annotations

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

VERSION: Final = "2023-06-01"
"""The version of the API, sent with every call."""
_REASONS: Final = {
    "end_turn": FinishReason.STOP,
    "tool_use": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "refusal": FinishReason.STOP,
    "max_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
}
_NO_INPUT: Final = msgspec.Raw(b"")


class _Block(msgspec.Struct, frozen=True):
    """A block of any type; the type determines which fields it has."""

    type: str
    text: str = ""
    thinking: str = ""
    id: str = ""
    name: str = ""
    input: msgspec.Raw = _NO_INPUT


class _Usage(msgspec.Struct, frozen=True):
    """The three counts of the prompt's tokens do not overlap."""

    input_tokens: Tokens = 0
    output_tokens: Tokens = 0
    cache_read_input_tokens: Tokens | None = None
    cache_creation_input_tokens: Tokens | None = None


class _Body(msgspec.Struct, frozen=True):
    content: msgspec.Raw
    stop_reason: str | None = None
    model: str | None = None
    usage: _Usage | None = None


_DECODER = msgspec.json.Decoder(_Body)
_BLOCKS = msgspec.json.Decoder(list[_Block])


def encode_request(request: ChatRequest, *, model: str, prompt_cache: bool = False) -> bytes:
    """Encode a call. The API's default values are left out: some models reject them.

    With `prompt_cache`, the API is asked to cache everything up to the last message.
    """
    sampling = request.sampling
    *earlier, last = request.messages
    body: dict[str, object] = {
        "model": model,
        "max_tokens": request.max_new_tokens,
        "messages": [*map(_written, earlier), _written(last, is_kept=prompt_cache)],
    }
    if request.system:
        body["system"] = request.system
    if request.tools:
        body["tools"] = [
            {
                "name": tool.name,
                "description": tool.description,
                "input_schema": tool.parameters,
            }
            for tool in request.tools
        ]
    if sampling.temperature != 1:
        body["temperature"] = sampling.temperature
    if sampling.top_p != 1:
        body["top_p"] = sampling.top_p
    if sampling.top_k != -1:
        body["top_k"] = sampling.top_k
    return msgspec.json.encode(body)


def decode_response(body: bytes) -> ChatResponse:
    """Decode the body of a 200. Raises EngineError."""
    found = decode(_DECODER, body)
    native = bytes(found.content)
    blocks = decode(_BLOCKS, native)
    for block in blocks:
        if block.type == "tool_use" and not bytes(block.input).startswith(b"{"):
            raise InvalidAnswerError("the input of a tool_use block is no object")
    usage = found.usage or _Usage()
    cached = usage.cache_read_input_tokens or 0
    return ChatResponse(
        AssistantMessage(
            text="".join(block.text for block in blocks if block.type == "text"),
            calls=checked_calls(
                [
                    ChatCall(block.id, block.name, bytes(block.input).decode())
                    for block in blocks
                    if block.type == "tool_use"
                ]
            ),
            reasoning="".join(block.thinking for block in blocks if block.type == "thinking"),
            native=native,
        ),
        finish_reason(found.stop_reason, _REASONS),
        ChatUsage(
            usage.input_tokens + cached + (usage.cache_creation_input_tokens or 0),
            usage.output_tokens,
            cached,
        ),
        model=(found.model or "")[:256],
    )


def _written(message: ChatMessage, *, is_kept: bool = False) -> dict[str, object]:
    """Return one message; `is_kept` asks the API to cache everything up to this message."""
    mark = {"cache_control": {"type": "ephemeral"}} if is_kept else {}
    match message:
        case UserMessage(text):
            return {"role": "user", "content": [{"type": "text", "text": text, **mark}]}
        case AssistantMessage(native=bytes(native)) if native:
            return {"role": "assistant", "content": msgspec.Raw(native)}
        case AssistantMessage(text, calls):
            words = [{"type": "text", "text": text}] if text else []
            uses = [
                {
                    "type": "tool_use",
                    "id": call.id,
                    "name": call.name,
                    "input": _object(call.arguments),
                }
                for call in calls
            ]
            return {"role": "assistant", "content": [*words, *uses]}
        case ToolResults(results):
            content: list[dict[str, object]] = [
                {
                    "type": "tool_result",
                    "tool_use_id": result.call_id,
                    "content": result.text,
                    **({"is_error": True} if result.is_error else {}),
                }
                for result in results
            ]
            return {"role": "user", "content": [*content[:-1], content[-1] | mark]}


def _object(arguments: str) -> dict[str, object]:
    """Decode the arguments of a call from elsewhere; anything but an object becomes empty."""
    try:
        return msgspec.json.decode(arguments, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return {}
