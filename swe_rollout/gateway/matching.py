"""Decide whether two conversations are the same, whatever a harness does to their form.

A conversation is known by a chain of digests, one for each turn, so that a request costs what its
own text costs. What is left out of a digest is a declared rule: white space at the ends of a text,
the order of keys and the spelling of numbers in arguments, ids of calls, and reasoning.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict, deque
from collections.abc import Sequence

from swe_rollout.agent.history import Exchange
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.gateway.values import Answer, Call, Request, Told
from swe_rollout.types.turn import CallStatus, ToolCall


def chain(request: Request) -> list[bytes]:
    """Return the digest of the conversation before each turn, and of all of it."""
    first = [f"{message.role.value} {message.content.strip()}" for message in request.first]
    digest = _digest(b"", [_tools(request.tools), *first])
    found = [digest]
    for turn in request.turns:
        digest = _digest(digest, [*_said(turn.text, turn.calls), *_after(turn)])
        found.append(digest)
    return found


def size_of(request: Request) -> int:
    """Return how many characters a conversation has, without its tools."""
    turns = sum(
        len(turn.text)
        + len(turn.message)
        + sum(len(call.arguments) for call in turn.calls)
        + sum(len(result.text) for result in turn.results)
        for turn in request.turns
    )
    return turns + sum(len(message.content) for message in request.first)


def tells(turn: Told, answer: Answer) -> bool:
    """Return whether a harness tells an answer as it was given."""
    return _said(turn.text, turn.calls) == _said(answer.text, answer.calls)


def changes(turn: Told, answer: Answer) -> tuple[str, ...]:
    """Return the rules by which a turn that is told is an answer all the same."""
    pairs = list(zip(turn.calls, answer.calls, strict=False))
    found = {
        "white space": turn.text != answer.text,
        "arguments": any(told.arguments != given.arguments for told, given in pairs),
        "ids": any(told.id != given.id for told, given in pairs),
    }
    return tuple(name for name, differs in found.items() if differs)


def results_of(calls: Sequence[ToolCall], turn: Told) -> list[str] | None:
    """Return the results of sampled calls in order; None if some are missing or unasked for."""
    found, others = _by_place(turn)
    if others or len(found) != len(calls) or any(place is None for place in found):
        return None
    return [text for text in found if text is not None]


def exchange_of(turn: Told) -> Exchange:
    """Return a turn that is told as a part of a prompt; results without a call are messages."""
    found, others = _by_place(turn)
    calls = tuple(ToolCall(CallStatus.OK, "", call.name, dict(call.given)) for call in turn.calls)
    message = "\n\n".join(filter(None, [*others, turn.message]))
    return Exchange(turn.text, calls, tuple(text or "" for text in found), message)


def _by_place(turn: Told) -> tuple[list[str | None], list[str]]:
    """Return the result of each call, and the results of none; equal ids are told in order."""
    places = defaultdict[str, deque[int]](deque)
    for place, call in enumerate(turn.calls):
        places[call.id].append(place)
    found: list[str | None] = [None] * len(turn.calls)
    others: list[str] = []
    for each in turn.results:
        if places[each.id]:
            found[places[each.id].popleft()] = each.text
        else:
            others.append(each.text)
    return found, others


def _said(text: str, calls: Sequence[Call]) -> list[str]:
    return [f"t{text.strip()}", *(f"c{call.name} {_arguments(call)}" for call in calls)]


def _arguments(call: Call) -> str:
    return json.dumps(call.given, sort_keys=True)


def _after(turn: Told) -> list[str]:
    # A result is known by the place of its call: ids may change.
    found, others = _by_place(turn)
    results = [f"r{place} {text.strip()}" for place, text in enumerate(found) if text is not None]
    return [*results, *(f"o{text.strip()}" for text in others), f"m{turn.message.strip()}"]


def _tools(tools: Sequence[ToolSpec]) -> str:
    return json.dumps([tool.function() for tool in tools], sort_keys=True)


def _digest(before: bytes, parts: Sequence[str]) -> bytes:
    digest = hashlib.sha256(before)
    for part in parts:
        data = part.encode(errors="replace")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.digest()
