"""What a harness asks for and what it gets, in the one form that all APIs are translated into."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import msgspec

from swe_rollout.agent.prompts import Message
from swe_rollout.agent.tools.base import ToolSpec


class BadRequestError(Exception):
    """A request that can't be answered, whoever sends it again."""

    def __init__(self, why: str, *, code: str = "invalid_request_error", status: int = 400) -> None:
        """`code` and `status` are what the API's own servers would answer."""
        super().__init__(why)
        self.code, self.status = code, status


def _number(text: str) -> int | float:
    """Return a number as most languages tell it, in which 10.0 is 10."""
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < _EXACT else value


_EXACT: Final = 1 << 53

# Every request tells all turns again, so what stands for their parts is the type that is made and
# compared at the least cost.


class Call(msgspec.Struct, frozen=True, gc=False):
    """A call of a tool, as the policy sampled it or as a harness tells it."""

    id: str
    name: str
    arguments: str
    """JSON text, or whatever the policy wrote in its place."""

    @property
    def values(self) -> Mapping[str, object] | None:
        """The arguments; None if they are no JSON object."""
        try:
            found = json.loads(self.arguments or "{}", parse_float=_number)
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None

    @property
    def given(self) -> Mapping[str, object]:
        """The arguments as an object: what is none is the argument `arguments` of one."""
        values = self.values
        return {"arguments": self.arguments} if values is None else values


class Result(msgspec.Struct, frozen=True, gc=False):
    """The result of a call, by the call's id."""

    id: str
    text: str


class Told(msgspec.Struct, frozen=True, gc=False):
    """A turn of the policy as a harness tells it, and what came after it."""

    text: str
    calls: tuple[Call, ...] = ()
    results: tuple[Result, ...] = ()
    message: str = ""
    """What the user, or the system, said after the results."""


@dataclass(frozen=True, slots=True)
class Request:
    """A conversation, and how its next turn is to be sampled."""

    first: tuple[Message, ...]
    """The messages before the first turn: of the system, if any, then of the user."""
    turns: tuple[Told, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int | None = None
    stops: tuple[str, ...] = ()
    """Texts before which the answer ends."""
    most_calls: int | None = None
    """How many calls the answer may have; what more is sampled is told as text."""
    ignored: tuple[str, ...] = ()
    """What the request has that has no meaning here, such as tools that are no functions."""

    @property
    def limits(self) -> tuple[object, ...]:
        """What ends the answer early."""
        return self.max_tokens, self.stops, self.most_calls


class Finish(StrEnum):
    """Why an answer ended."""

    STOP = "stop"
    CALLS = "calls"
    LENGTH = "length"


@dataclass(frozen=True, slots=True)
class Answer:
    """A sampled turn in the form that a harness gets."""

    id: str
    text: str
    reasoning: str
    calls: tuple[Call, ...]
    finish: Finish
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    created: int = field(compare=False)
    """Seconds since 1970."""
    stop: str = ""
    """The stop sequence before which it ends."""
