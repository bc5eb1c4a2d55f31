"""A turn as the events of Strands' streaming protocol: text, then each call, the end, the usage."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from swe_rollout.integrations.strands.conversation import SaidTurn
from swe_rollout.types.turn import CallStatus, FinishReason, ToolCall

INVALID_CALL: Final = "invalid_tool_call"
"""The name under which the agent sees a call that could not be read: no tool has it."""


def events_of(turn: SaidTurn) -> Iterator[dict[str, object]]:
    """Yield the events of one message of the assistant."""
    yield {"messageStart": {"role": "assistant"}}
    yield from _block({}, {"text": turn.text})
    for use, call in zip(turn.use_ids, turn.calls, strict=True):
        name = call.name if call.status is CallStatus.OK else INVALID_CALL
        start: dict[str, object] = {"toolUse": {"toolUseId": use, "name": name}}
        yield from _block(start, {"toolUse": {"input": _input(call)}})
    yield {"messageStop": {"stopReason": _stop_reason(turn)}}
    yield {
        "metadata": {
            "usage": {
                "inputTokens": turn.prompt_tokens,
                "outputTokens": turn.completion_tokens,
                "totalTokens": turn.prompt_tokens + turn.completion_tokens,
                "cacheReadInputTokens": turn.cached_tokens,
            },
            "metrics": {"latencyMs": round(1e3 * turn.seconds)},
        }
    }


def _block(start: dict[str, object], delta: dict[str, object]) -> Iterator[dict[str, object]]:
    yield {"contentBlockStart": {"start": start}}
    yield {"contentBlockDelta": {"delta": delta}}
    yield {"contentBlockStop": {}}


def _input(call: ToolCall) -> str:
    if call.status is CallStatus.OK:
        return json.dumps(call.arguments)
    return json.dumps({"name": call.name, "raw": call.raw, "problem": call.problem})


def _stop_reason(turn: SaidTurn) -> str:
    match turn.finish:
        case FinishReason.LENGTH:
            return "max_tokens"
        case _:
            return "tool_use" if turn.calls else "end_turn"
