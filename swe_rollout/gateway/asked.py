"""Requests as a journal keeps them: what is new in each, beside the turn that it goes on from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from swe_rollout.agent.prompts import Message
from swe_rollout.gateway.dialects.base import tool
from swe_rollout.gateway.values import Request, Told


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, or what it adds to an earlier one."""

    after: int | None
    """The turn that it goes on from, whose request has the beginning; None if this has all."""
    turns: tuple[Told, ...]
    max_tokens: int | None
    stops: tuple[str, ...]
    first: tuple[Message, ...] = ()
    tools: tuple[tuple[str, str, dict[str, object]], ...] = ()
    """Names, descriptions, schemas."""
    most_calls: int | None = None
    ignored: tuple[str, ...] = ()


_DECODER: Final = msgspec.json.Decoder(Asked)  # numbers of any size


def encode(request: Request, after: int | None) -> bytes:
    """Return a request as a journal keeps it."""
    asked = Asked(
        after,
        request.turns,
        request.max_tokens,
        request.stops,
        most_calls=request.most_calls,
        ignored=request.ignored,
    )
    if after is None:
        tools = tuple((t.name, t.description, t.arguments.schema) for t in request.tools)
        asked = replace(asked, first=request.first, tools=tools)
    else:
        asked = replace(asked, turns=request.turns[-1:])
    return msgspec.json.encode(asked)


def decode(data: bytes, earlier: Sequence[Request]) -> Request:
    """Return the request, which goes on from one of the earlier ones. Raises ValueError."""
    asked = _DECODER.decode(data)
    tools = tuple(tool(*each) for each in asked.tools)
    request = Request(
        asked.first,
        asked.turns,
        tools,
        asked.max_tokens,
        asked.stops,
        asked.most_calls,
        asked.ignored,
    )
    if asked.after is None:
        return request
    if not 0 <= asked.after < len(earlier):
        raise ValueError(f"it goes on from turn {asked.after}, of {len(earlier)}")
    base = earlier[asked.after]
    return replace(request, first=base.first, tools=base.tools, turns=(*base.turns, *request.turns))
