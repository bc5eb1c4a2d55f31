"""What parsers share: sampled text with its control tokens, reasoning, and checks of calls.

A parser finds every attempt at a call and decides for each whether it may run. Attempts inside the
reasoning are drafts, not calls. The sampled ids themselves are never changed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from swe_rollout.agent.parsers.strict_json import SPACE, read_json
from swe_rollout.agent.tools.arguments import json_types
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.types.turn import CallStatus, TokenSpan, ToolCall

_BOOLEANS = {"true": True, "True": True, "false": False, "False": False}


@dataclass(frozen=True, slots=True)
class Reasoning:
    """The marks of a family's reasoning; calls inside it are drafts and never run."""

    opener: str = "<think>"
    closer: str = "</think>"
    opened: bool = False
    """Whether the prompt ended inside the reasoning, so that the turn starts with reasoning."""
    headers: frozenset[str] = frozenset()
    """Tokens followed by a message's header, or by more of it, up to the next token."""
    header_ends: frozenset[str] = frozenset()
    """Tokens before which a turn may still be in the header with which its prompt ended."""


@dataclass(frozen=True, slots=True)
class Delimiters:
    """The start and end of a call, or of a section of calls."""

    opener: str
    closer: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A control token in sampled text: its offset, and its text."""

    start: int
    token: str

    @property
    def end(self) -> int:
        """Offset of the text after the mark."""
        return self.start + len(self.token)


@dataclass(frozen=True, slots=True)
class SampledText:
    """One turn as text, without the token that ended it."""

    text: str
    marks: tuple[Mark, ...]
    """The control tokens, in order."""
    atomic: frozenset[str] = frozenset()
    """Texts that are one token in this vocabulary; spelled with other tokens they do not count."""
    token_at: Callable[[int], int | None] | None = field(default=None, compare=False)
    """Returns the index of the sampled token that contains the character at an offset; for the end
    of the text, the number of tokens. None if only text is known."""
    ended_by: str = ""
    """The token that ended the turn; empty if the turn was truncated or the token is unknown."""
    _offsets: dict[str, list[int]] = field(init=False, repr=False, compare=False)
    """Offsets of each delimiter, cached: a turn full of openers is searched thousands of times."""

    def __post_init__(self) -> None:
        """Index control tokens; other delimiters are indexed when they are first searched for."""
        offsets: dict[str, list[int]] = {}
        for mark in self.marks:
            offsets.setdefault(mark.token, []).append(mark.start)
        object.__setattr__(self, "_offsets", offsets)

    @property
    def whole(self) -> str:
        """The text, with the token that ended the turn."""
        return self.text + self.ended_by

    def span(self, start: int, end: int) -> TokenSpan | None:
        """Return the span of tokens that contain the characters `[start, end)`."""
        if self.token_at is None:
            return None
        first, last = self.token_at(start), self.token_at(end - 1)
        return None if first is None or last is None else TokenSpan(first, last + 1)

    def find(self, delimiter: str, start: int) -> int | None:
        """Return the offset of the next `delimiter` at or after `start`."""
        starts = self._offsets.get(delimiter)
        if starts is None:
            found = () if delimiter in self.atomic else _occurrences(self.text, delimiter)
            if delimiter.startswith(tuple(self.atomic)):
                # A token and the text behind it, as harmony's and Gemma's reasoning begins.
                real = {mark.start for mark in self.marks}
                found = (at for at in found if at in real)
            starts = self._offsets[delimiter] = list(found)
        index = bisect_left(starts, start)
        return starts[index] if index < len(starts) else None

    def first(self, delimiters: Iterable[str], start: int) -> Mark | None:
        """Return the delimiter that comes first at or after `start`."""
        found = [Mark(at, d) for d in delimiters if (at := self.find(d, start)) is not None]
        return min(found, key=lambda mark: mark.start, default=None)

    def without_spelled(self, *tokens: str) -> SampledText:
        """Return the text with merely spelled `tokens` blanked; offsets do not change.

        This is for grammars that are parsed with regular expressions.
        """
        text = self.text
        for token in self.atomic.intersection(tokens):
            real = frozenset(self._offsets.get(token, ()))
            blank, pieces, at = "\0" * len(token), [], 0
            for found in _occurrences(text, token):
                if found not in real:
                    pieces += [text[at:found], blank]
                    at = found + len(token)
            text = "".join([*pieces, text[at:]])
        return self if text == self.text else replace(self, text=text)


def _occurrences(text: str, delimiter: str) -> Iterator[int]:
    at = text.find(delimiter)
    while at >= 0:
        yield at
        at = text.find(delimiter, at + 1)


@dataclass(frozen=True, slots=True)
class Found:
    """The attempts that one opener started, and the offset where parsing continues."""

    calls: tuple[ToolCall, ...]
    """The attempts; one without a span spans everything from the opener to `end`."""
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
        """Return every attempt outside the reasoning, in order."""
        ...


@dataclass(frozen=True, slots=True)
class Piece:
    """The content between two offsets: attempts, reasoning, or other text."""

    calls: tuple[ToolCall, ...]
    start: int
    end: int
    is_thought: bool = False
    """Whether it is closed reasoning; reasoning that is never closed counts as text."""


def attempts(
    sampled: SampledText,
    begins: Callable[[int], Mark | None],
    read: Callable[[Mark], Found],
    *,
    reasoning: Reasoning,
) -> tuple[ToolCall, ...]:
    """Return what `read` finds at each opener; `begins` finds the next opener from an offset on.

    Openers inside the reasoning don't count; reasoning that never ends swallows the rest.
    """
    found = pieces(sampled, begins, read, reasoning=reasoning)
    return tuple(call for piece in found for call in piece.calls)


def pieces(
    sampled: SampledText,
    begins: Callable[[int], Mark | None],
    read: Callable[[Mark], Found],
    *,
    reasoning: Reasoning,
) -> Iterator[Piece]:
    """Yield the attempts as `attempts` does, and all text between them."""
    at, size = _behind(sampled, reasoning.closer, 0) if reasoning.opened else 0, len(sampled.text)
    while at is not None:
        opener, thought = begins(at), sampled.find(reasoning.opener, at)
        if thought is not None and (opener is None or thought < opener.start):
            yield Piece((), at, thought)
            at = _behind(sampled, reasoning.closer, thought)
            yield Piece((), thought, size if at is None else at, is_thought=at is not None)
            continue
        yield Piece((), at, opener.start if opener else size)
        if opener is None:
            break
        found = read(opener)
        span = sampled.span(opener.start, found.end)
        calls = tuple(replace(call, span=call.span or span) for call in found.calls)
        yield Piece(calls, opener.start, found.end)
        at = found.end


@dataclass(frozen=True, slots=True)
class OpenerParser(ToolCallParser):
    """Reads a grammar whose attempts start with one of a few openers."""

    openers: tuple[str, ...]
    read: Callable[[SampledText, Mark, Sequence[ToolSpec]], Found]

    def parse(
        self, sampled: SampledText, *, tools: Sequence[ToolSpec], reasoning: Reasoning
    ) -> tuple[ToolCall, ...]:
        return attempts(
            sampled,
            lambda at: sampled.first(self.openers, at),
            lambda opener: self.read(sampled, opener, tools),
            reasoning=reasoning,
        )


class MalformedError(Exception):
    """A call does not follow the grammar, or a value in it does not have its declared type."""

    def __init__(self, problem: str, status: CallStatus = CallStatus.MALFORMED) -> None:
        super().__init__(problem)
        self.status = status


def text_start(sampled: SampledText, reasoning: Reasoning) -> int:
    """Return the start of the text after the reasoning, for grammars without an opener."""
    at = _behind(sampled, reasoning.closer, 0) if reasoning.opened else 0
    while at is not None and (start := sampled.find(reasoning.opener, at)) is not None:
        if sampled.text[at:start].strip():
            return at
        at = _behind(sampled, reasoning.closer, start)
    return len(sampled.text) if at is None else at


def thoughts(sampled: SampledText, reasoning: Reasoning) -> list[tuple[int, int]] | None:
    """Return the spans of the reasoning; None if it never ends."""
    spans, start = list[tuple[int, int]](), 0 if reasoning.opened else None
    if start is None:
        start = sampled.find(reasoning.opener, 0)
    while start is not None:
        end = _behind(sampled, reasoning.closer, start)
        if end is None:
            return None
        spans.append((start, end))
        start = sampled.find(reasoning.opener, end)
    return spans


def _behind(sampled: SampledText, delimiter: str, start: int) -> int | None:
    found = sampled.find(delimiter, start)
    return None if found is None else found + len(delimiter)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an attempt can't run, and what is known about it."""

    status: CallStatus
    problem: str = ""
    name: str = ""
    known_to: int = 0
    """The end of the text that was parsed; it contains no delimiter."""

    def call(self, raw: str, call_id: str = "") -> ToolCall:
        """Return the attempt, with a problem that tells the policy why it was not run."""
        return ToolCall(self.status, raw, self.name, problem=not_run(self.problem), id=call_id)

    def found(self, raw: str, end: int) -> Found:
        """Return the attempt as all that one opener started."""
        return Found((self.call(raw),), end)


def refused(sampled: SampledText, start: int, delimiters: Delimiters, refusal: Refusal) -> Found:
    """Return an attempt that can't run, up to its closer; without a closer it is unclosed."""
    opener, closer = delimiters.opener, delimiters.closer
    mark = sampled.first((opener, closer), max(start, refusal.known_to))
    if mark is not None and mark.token == closer:
        return refusal.found(sampled.text[start : mark.start], mark.end)
    end = len(sampled.text) if mark is None else mark.start
    unclosed = Refusal(CallStatus.UNCLOSED, f"it is not closed by {closer}", refusal.name)
    return unclosed.found(sampled.text[start:end], end)


def not_run(problem: str) -> str:
    """Return the message that tells the policy why a call was not run."""
    return f"the call was not run: {problem}"


def unless_refused(call: ToolCall, problem: str) -> ToolCall:
    """Return a runnable call as malformed, and any other call unchanged."""
    if call.status is not CallStatus.OK:
        return call
    return replace(call, status=CallStatus.MALFORMED, arguments={}, problem=problem)


def checked(
    name: str, arguments: Mapping[str, object], *, tools: Sequence[ToolSpec], raw: str
) -> ToolCall:
    """Check a well-formed call against the tools: ok, unknown_tool or bad_arguments."""
    spec = tool_named(name, tools)
    if spec is None:
        known = ", ".join(tool.name for tool in tools)
        problem = f"there is no tool named {name[:80]!r}; the tools are {known}"
        return ToolCall(CallStatus.UNKNOWN_TOOL, raw, name, problem=problem)
    problems = spec.problems(arguments)
    if problems:
        why = f"the call of {name} was not run: " + "; ".join(problems)
        return ToolCall(CallStatus.BAD_ARGUMENTS, raw, name, problem=why)
    return ToolCall(CallStatus.OK, raw, name, dict(arguments))


def typed(text: str, name: str, spec: ToolSpec | None) -> object:
    """Convert an argument that was written as plain text to the type in its schema.

    If the schema allows more than strings, JSON is decoded, unless the schema allows strings but
    not that JSON type. Any other text stays a string, which schema validation may reject.
    """
    return typed_as(text, spec.arguments.types_of(name) if spec is not None else frozenset())


def typed_as(text: str, types: frozenset[str]) -> object:
    """Convert plain text to one of the allowed JSON types; without any, it stays a string."""
    if not types - {"string"}:
        return text
    if "boolean" in types and text.strip(SPACE) in _BOOLEANS:
        return _BOOLEANS[text.strip(SPACE)]
    try:
        value = read_json(text).whole
    except ValueError:
        return text
    return text if "string" in types and types.isdisjoint(json_types(value)) else value


def tool_named(name: str, tools: Sequence[ToolSpec]) -> ToolSpec | None:
    """Return the tool of that name."""
    return next((tool for tool in tools if tool.name == name), None)
