"""Turn what was sampled into an answer for a harness.

A call is given away as it was sampled, also one that does not fit: the harness checks its own
tools. What is no call at all is text.
"""

from __future__ import annotations

import json
import time
from itertools import islice

from swe_rollout.agent.parts import AgentParts
from swe_rollout.agent.sampled_turn import SampledTurn
from swe_rollout.gateway.values import Answer, Call, Finish, Request
from swe_rollout.types.turn import CallStatus, FinishReason, ToolCall, Turn


def calls_of(turn: SampledTurn, request: Request) -> tuple[ToolCall, ...]:
    """Return the attempts at a call that a harness can answer, and wants: those with a name."""
    named = (call for call in turn.calls if call.name and call.status is not CallStatus.UNCLOSED)
    return tuple(islice(named, request.most_calls))


def answer_of(
    turn: SampledTurn, record: Turn, prompt_tokens: int, request: Request, parts: AgentParts
) -> Answer:
    """Return the answer that a sampled turn is."""
    calls = calls_of(turn, request)
    text = turn.words
    for call in reversed(calls):
        # A call that the text quotes stands before the call itself.
        if raw := call.raw.strip():
            before, _, after = text.rpartition(raw)
            text = before + after
    text, stop = _before(text.strip(), request.stops)
    finish = Finish.CALLS if calls else Finish.STOP
    if record.finish_reason is FinishReason.LENGTH and not stop:
        finish = Finish.LENGTH
    name = f"{record.index}"
    return Answer(
        id=f"turn_{name}",
        text=text,
        reasoning=_reasoning(turn, parts),
        calls=tuple(
            Call(f"call_{name}_{place}", call.name, _arguments(call))
            for place, call in enumerate(calls)
        ),
        finish=finish,
        stop=stop,
        prompt_tokens=prompt_tokens,
        completion_tokens=record.completion_tokens,
        cached_tokens=record.cached_tokens,
        created=int(time.time()),
    )


def _before(text: str, stops: tuple[str, ...]) -> tuple[str, str]:
    """Return the text before the first of these, and which it is."""
    places = [(at, stop) for stop in stops if stop and (at := text.find(stop)) >= 0]
    at, stop = min(places, default=(len(text), ""))
    return text[:at], stop


def _arguments(call: ToolCall) -> str:
    """Return the arguments as JSON, also of a call that does not fit, or else its own text."""
    if call.arguments or call.status is CallStatus.OK:
        return json.dumps(call.arguments, ensure_ascii=False)
    try:
        found = json.loads(call.raw)
    except (ValueError, RecursionError):
        return call.raw
    match found:
        case {"name": _, "arguments": dict() as inner} | {"name": _, "parameters": dict() as inner}:
            return json.dumps(inner, ensure_ascii=False)
        case _:
            return call.raw


def _reasoning(turn: SampledTurn, parts: AgentParts) -> str:
    """Return the reasoning of a turn, between its marks."""
    marks = parts.tokens.renderer.reasoning(opened=False)
    if not marks.closer or marks.closer not in turn.text:
        return ""
    before = turn.text.partition(marks.closer)[0]
    return before.rpartition(marks.opener)[2].strip() if marks.opener else before.strip()
