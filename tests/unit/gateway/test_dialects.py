"""Bodies as clients send them: what they cost, and what they mean."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import msgspec
import pytest

from swe_rollout.gateway.dialects import base
from swe_rollout.gateway.dialects.google_generate import GoogleGenerate
from swe_rollout.gateway.dialects.openai_chat import OpenaiChat
from swe_rollout.gateway.values import Told

USER = {"role": "user", "content": "a"}
POLICY = {"role": "assistant", "content": "a"}
RESULT = {"role": "tool", "tool_call_id": "a"}


@pytest.mark.parametrize("each", [USER, RESULT])
def test_a_turn_is_not_copied_for_all_that_follows_it(
    each: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Told] = []

    class Counted(Told):
        def __init__(self, *args: Any, **fields: Any) -> None:
            super().__init__(*args, **fields)
            made.append(self)

    monkeypatch.setattr(base, "Told", Counted)
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
