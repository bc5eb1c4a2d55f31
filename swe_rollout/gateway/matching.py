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
from dataclasses import dataclass
from typing import Final

import msgspec

from swe_rollout.agent.history import Exchange
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.gateway.values import Answer, Call, Request, Told
from swe_rollout.types.turn import CallStatus, ToolCall

_KEPT: Final = 4
"""Conversations that a session knows: the main one, and those of sub-agents."""
_KEPT_SIZE: Final = 1 << 20
"""Bytes of the longest body whose conversation is known, or characters: of up to four bytes."""


def chain(request: Request, known: Sequence[Chain] = ()) -> Chain:
    """Return the digest of the conversation before each turn, and of all of it.

    What it has in common with a known one is compared with it, and not digested again.
    """
    first = [f"{message.role.value} {message.content.strip()}" for message in request.first]
    digests = [_digest(b"", [_tools(request.tools), *first])]
    begun = (each.common(digests[0], request.turns) for each in known)
    digests = max(begun, key=len, default=[]) or digests
    for turn in request.turns[len(digests) - 1 :]:
        digests.append(_digest(digests[-1], [*_said(turn.text, turn.calls), *_after(turn)]))
    return Chain(digests, request.turns)


@dataclass(frozen=True, slots=True)
class Chain:
    """A conversation: its digests, and the turns behind the first of them."""

    digests: list[bytes]
    turns: tuple[Told, ...]

    def common(self, first: bytes, turns: Sequence[Told]) -> list[bytes]:
        """Return the digests that it shares with another; none if their first ones differ."""
        if self.digests[0] != first:
            return []
        pairs = enumerate(zip(self.turns, turns, strict=False))
        end = next((at for at, (own, other) in pairs if own != other), None)
        same = min(len(self.turns), len(turns)) if end is None else end
        return self.digests[: same + 1]


class Chains:
    """The chains of a session; the last conversations are known."""

    def __init__(self) -> None:
        self.known: tuple[Chain, ...] = ()

    def of(self, request: Request, size: int) -> list[bytes]:
        """Return the digests of a request; one of no great `size` is known from now on."""
        found = chain(request, self.known)
        if size <= _KEPT_SIZE:
            # It takes the place of those that it goes on from. Threads may lose each other's.
            others = (e for e in self.known if found.digests[: len(e.digests)] != e.digests)
            self.known = (found, *others)[:_KEPT]
        return found.digests


def size_of(request: Request) -> int:
    """Return how many characters a conversation has, with its tools."""
    turns = sum(
        len(turn.text)
        + len(turn.message)
        + sum(len(call.arguments) for call in turn.calls)
        + sum(len(result.text) for result in turn.results)
        for turn in request.turns
    )
    first = sum(len(message.content) for message in request.first)
    return turns + first + len(_tools(request.tools))


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
    return msgspec.json.encode([tool.function() for tool in tools], order="sorted").decode()


def _digest(before: bytes, parts: Sequence[str]) -> bytes:
    digest = hashlib.sha256(before)
    for part in parts:
        data = part.encode(errors="replace")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.digest()
