"""What parsers share: sampled text with its control tokens, reasoning, and a tool's schema.

A parser finds every attempt at a call and says for each whether it may run. Attempts inside the
reasoning are drafts and no calls. The sampled ids themselves are never touched.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from swe_rollout.agent.tools.base import Kind
from swe_rollout.trajectory import CallStatus, TokenSpan, ToolCall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from swe_rollout.agent.tools.base import ToolSpec

OPENER = "<tool_call>"
CLOSER = "</tool_call>"
_LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Reasoning:
    """How a family marks its reasoning; calls inside it are drafts and never run."""

    opener: str = "<think>"
    closer: str = "</think>"
    opened: bool = False
    """Whether the prompt ended inside it, so that a turn begins with reasoning."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A control token in sampled text: its offset, and its text."""

    start: int
    token: str


@dataclass(frozen=True, slots=True)
class SampledText:
    """One turn as text, without the id that ended it."""

    text: str
    marks: tuple[Mark, ...]
    """The control tokens, in order."""
    atomic: frozenset[str] = frozenset()
    """Texts that are one token in this vocabulary: only that token counts, never its spelling."""
    token_at: Callable[[int], int] | None = field(default=None, compare=False)
    """Index of the sampled token that holds the character at an offset; the count of tokens for
    the end of the text. None where only text is known."""

    def span(self, start: int, end: int) -> TokenSpan | None:
        """The tokens that hold the characters `[start, end)`."""
        if self.token_at is None:
            return None
        return TokenSpan(self.token_at(start), self.token_at(end - 1) + 1)

    def find(self, delimiter: str, start: int) -> int | None:
        """Offset of the next `delimiter` at or after `start`."""
        if delimiter in self.atomic:
            starts = (m.start for m in self.marks if m.token == delimiter and m.start >= start)
            return next(starts, None)
        found = self.text.find(delimiter, start)
        return found if found >= 0 else None

    def first(self, delimiters: Iterable[str], start: int) -> Mark | None:
        """The delimiter that comes first at or after `start`."""
        found = [Mark(at, d) for d in delimiters if (at := self.find(d, start)) is not None]
        return min(found, key=lambda mark: mark.start, default=None)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a call, and where the text goes on behind it."""

    call: ToolCall
    end: int


class ToolCallParser(Protocol):
    """Finds the calls of one grammar."""

    def parse(
        self,
        sampled: SampledText,
        *,
        tools: Sequence[ToolSpec],
        reasoning: Reasoning,
    ) -> tuple[ToolCall, ...]:
        """Every attempt outside the reasoning, in order; empty when there is none."""
        ...


def attempts(
    sampled: SampledText,
    read: Callable[[int], Attempt],
    *,
    reasoning: Reasoning,
) -> tuple[ToolCall, ...]:
    """What `read` makes of each opener outside the reasoning; it is given the offset behind one.

    Reasoning that never ends swallows the rest.
    """
    calls: list[ToolCall] = []
    at = _behind(sampled, reasoning.closer, 0) if reasoning.opened else 0
    while at is not None and (mark := sampled.first((OPENER, reasoning.opener), at)):
        if mark.token == reasoning.opener:
            at = _behind(sampled, reasoning.closer, mark.start)
        else:
            attempt = read(mark.start + len(OPENER))
            calls.append(attempt.call)
            at = attempt.end
    return tuple(calls)


def reasoning_is_open(sampled: SampledText, reasoning: Reasoning) -> bool:
    """Whether a turn that was cut was cut inside its reasoning."""
    at = _behind(sampled, reasoning.closer, 0) if reasoning.opened else 0
    while at is not None and (start := sampled.find(reasoning.opener, at)) is not None:
        at = _behind(sampled, reasoning.closer, start)
    return at is None


def _behind(sampled: SampledText, delimiter: str, start: int) -> int | None:
    found = sampled.find(delimiter, start)
    return None if found is None else found + len(delimiter)


def refused(
    sampled: SampledText, start: int, *, status: CallStatus, problem: str, known_to: int = 0
) -> Attempt:
    """An attempt that can't run: `status` up to its closer, unclosed where none is its own.

    `known_to`: how far the text was understood, so that no delimiter lies before it.
    """
    mark = sampled.first((OPENER, CLOSER), max(start, known_to))
    told = f"the call was not run: {problem}"
    if mark is not None and mark.token == CLOSER:
        raw = sampled.text[start : mark.start]
        return Attempt(ToolCall(status, raw, problem=told), mark.start + len(CLOSER))
    end = len(sampled.text) if mark is None else mark.start
    told = f"the call was not run: it is not closed by {CLOSER}"
    return Attempt(ToolCall(CallStatus.UNCLOSED, sampled.text[start:end], problem=told), end)


def checked(
    name: str, arguments: Mapping[str, object], *, tools: Sequence[ToolSpec], raw: str
) -> ToolCall:
    """A well-formed call, held against the tools: ok, unknown_tool or bad_arguments."""
    spec = next((tool for tool in tools if tool.name == name), None)
    if spec is None:
        known = ", ".join(tool.name for tool in tools)
        problem = f"there is no tool named {name[:80]!r}; the tools are {known}"
        return ToolCall(CallStatus.UNKNOWN_TOOL, raw, name, problem=problem)
    problems = [*_unknown(spec, arguments), *_wrong(spec, arguments)]
    if problems:
        told = f"the call of {name} was not run: " + "; ".join(problems)
        return ToolCall(CallStatus.BAD_ARGUMENTS, raw, name, problem=told)
    return ToolCall(CallStatus.OK, raw, name, dict(arguments))


def _unknown(spec: ToolSpec, arguments: Mapping[str, object]) -> Iterator[str]:
    known = [parameter.name for parameter in spec.parameters]
    for name in arguments:
        if name not in known:
            listed = f"it takes {', '.join(known)}" if known else "it takes none"
            yield f"there is no argument {name[:80]!r}, {listed}"


def _wrong(spec: ToolSpec, arguments: Mapping[str, object]) -> Iterator[str]:
    for parameter in spec.parameters:
        if parameter.name not in arguments:
            if parameter.required:
                yield f"the argument {parameter.name!r} is missing"
            continue
        value = arguments[parameter.name]
        if not _fits(value, parameter.kind):
            yield f"{parameter.name!r} must be {parameter.kind.value}"
        elif parameter.choices and value not in parameter.choices:
            yield f"{parameter.name!r} must be one of {', '.join(parameter.choices)}"


def _fits(value: object, kind: Kind) -> bool:
    match kind:
        case Kind.STRING:
            return isinstance(value, str)
        case Kind.BOOLEAN:
            return isinstance(value, bool)
        case Kind.INTEGER:
            return _is_integer(value)
        case Kind.NUMBER:
            return _is_integer(value) or (isinstance(value, float) and math.isfinite(value))
        case Kind.INTEGERS:
            return isinstance(value, list) and all(map(_is_integer, value))


def _is_integer(value: object) -> bool:
    # Python's bool is an int, JSON's is not; and the stored record has 64 bits for one.
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST
