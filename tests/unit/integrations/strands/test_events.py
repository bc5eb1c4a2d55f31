from __future__ import annotations

import json

from swe_rollout.integrations.strands.conversation import INVALID_CALL, SaidTurn, events_of
from swe_rollout.types.turn import CallStatus, FinishReason, ToolCall

GOOD = ToolCall(CallStatus.OK, "…", "bash", {"command": "é"})
BAD = ToolCall(CallStatus.INVALID_JSON, "{", "bash", problem="not run: no JSON")


def turn(*calls: ToolCall, finish: FinishReason = FinishReason.STOP) -> SaidTurn:
    ids = tuple(f"call_{i}" for i in range(len(calls)))
    return SaidTurn("I act.", calls, ids, finish, 90, 10, 80, 1.5)


def test_a_message_is_its_text_and_then_its_calls() -> None:
    events = list(events_of(turn(GOOD, BAD)))
    assert events[:4] == [
        {"messageStart": {"role": "assistant"}},
        {"contentBlockStart": {"start": {}}},
        {"contentBlockDelta": {"delta": {"text": "I act."}}},
        {"contentBlockStop": {}},
    ]
    starts = [event["contentBlockStart"] for event in events if "contentBlockStart" in event]
    assert starts[1:] == [
        {"start": {"toolUse": {"toolUseId": "call_0", "name": "bash"}}},
        {"start": {"toolUse": {"toolUseId": "call_1", "name": INVALID_CALL}}},
    ]
    inputs = [
        json.loads(delta["toolUse"]["input"])
        for event in events
        if isinstance(block := event.get("contentBlockDelta"), dict)
        and "toolUse" in (delta := block["delta"])
    ]
    assert inputs == [
        {"command": "é"},
        {"name": "bash", "raw": "{", "problem": "not run: no JSON"},
    ]


def test_a_message_ends_as_the_turn_did() -> None:
    """S9."""

    def reason(said: SaidTurn) -> object:
        (stop,) = [event["messageStop"] for event in events_of(said) if "messageStop" in event]
        return stop

    assert reason(turn()) == {"stopReason": "end_turn"}
    assert reason(turn(GOOD)) == reason(turn(BAD)) == {"stopReason": "tool_use"}
    assert reason(turn(finish=FinishReason.LENGTH)) == {"stopReason": "max_tokens"}


def test_usage_and_latency_come_last() -> None:
    """S9."""
    *_, last = events_of(turn())
    assert last == {
        "metadata": {
            "usage": {
                "inputTokens": 90,
                "outputTokens": 10,
                "totalTokens": 100,
                "cacheReadInputTokens": 80,
            },
            "metrics": {"latencyMs": 1500},
        }
    }
