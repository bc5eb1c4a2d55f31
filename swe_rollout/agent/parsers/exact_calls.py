"""Refuse calls that may be only part of another call, because unmatched text surrounds them.

A value in tags is plain text, and a broken JSON string has no end: either may quote the end of its
own call, or another call. A command that was cut short, or one that was only quoted, would then
run. The real end of the value is unknown, but something is left over: a tag that belongs to no
call, or a malformed call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from swe_rollout.agent.parsers.base import (
    Delimiters,
    Found,
    Mark,
    Piece,
    Reasoning,
    SampledText,
    not_run,
    pieces,
    unless_refused,
)
from swe_rollout.agent.parsers.tags import Values
from swe_rollout.types.turn import CallStatus, ToolCall

_BESIDE = not_run(
    "tags near it belong to no well-formed call, so it may be only part of a longer call"
)
_STRAY = not_run("a tag behind it belongs to no call, so it may be only part of a call")
_QUOTED = not_run("a call before it goes on, so it may be only part of that call")
WELL_FORMED = {CallStatus.OK, CallStatus.BAD_ARGUMENTS, CallStatus.UNKNOWN_TOOL}


@dataclass(frozen=True, slots=True)
class LeftOvers:
    """Finds unmatched tags and malformed calls in one turn of a tag grammar.

    The first opening tag of a value and the last end of a call may belong together; everything
    between them would then be one value. So only well-formed calls and text without tags may be
    between them; otherwise none of those calls runs. Nor does any call after a truncated value.
    """

    sampled: SampledText
    values: Values
    closers: tuple[str, ...]
    """All closing tags of the grammar."""

    def refuse(self, found: Iterable[Piece]) -> tuple[Piece, ...]:
        """Return the pieces of a turn; a closing tag after the last call refuses that call."""
        turn = list(found)
        count = next((n for n, piece in enumerate(turn) if piece.calls), len(turn))
        before, turn = turn[:count], turn[count:]
        if not turn:
            return tuple(before)
        turn = self._without_flawed_span(turn, turn[0].start)
        latest, is_open = 0, False
        for index, piece in enumerate(turn):
            if is_open:
                turn[index] = _without(piece, _QUOTED)
            if piece.calls:
                latest = index
                is_open |= self._is_cut(piece)
            elif not piece.is_thought and self._has_closer(piece):
                turn[latest] = _without(turn[latest], _STRAY)
        return (*before, *turn)

    def _without_flawed_span(self, turn: Sequence[Piece], first: int) -> list[Piece]:
        """Refuse all calls of the widest span from an opening tag to an end if one is flawed."""
        span = self.values.widest(first)
        inside = [span is not None and p.start <= span[1] and span[0] < p.end for p in turn]
        pairs = list(zip(turn, inside, strict=True))
        is_flawed = any(is_in and self._is_flawed(piece) for piece, is_in in pairs)
        return [_without(p, _BESIDE) if is_flawed and is_in else p for p, is_in in pairs]

    def _is_flawed(self, piece: Piece) -> bool:
        if piece.calls:
            return any(call.status not in WELL_FORMED for call in piece.calls)
        return self._has_closer(piece) or self.values.has_unclosed(piece.start, piece.end)

    def _is_cut(self, piece: Piece) -> bool:
        return any(map(is_unclosed, piece.calls)) and self.values.has_unclosed(
            piece.start, piece.end
        )

    def _has_closer(self, piece: Piece) -> bool:
        found = self.sampled.first(self.closers, piece.start)
        return found is not None and found.start < piece.end


def calls_between(
    sampled: SampledText,
    delimiters: Delimiters,
    read: Callable[[Mark], Found],
    *,
    reasoning: Reasoning,
    begins: Callable[[int], Mark | None] | None = None,
    quotes: str = '"',
) -> tuple[ToolCall, ...]:
    """Return what `read` finds at each opener, for grammars whose values are quoted.

    `begins` finds the next opener if it is more than a delimiter. The closer is empty if the
    grammar's calls have none.
    """

    def has_closer(start: int, end: int) -> bool:
        found = sampled.find(delimiters.closer, start) if delimiters.closer else None
        return found is not None and found < end

    def goes_on(call: ToolCall) -> bool:
        return is_unclosed(call) and any(_is_odd(call.raw, quote) for quote in quotes)

    begins = begins or (lambda at: sampled.first((delimiters.opener,), at))
    found = pieces(sampled, begins, read, reasoning=reasoning)
    return refuse_beside_rest(found, has_closer=has_closer, goes_on=goes_on)


def refuse_beside_rest(
    found: Iterable[Piece],
    *,
    has_closer: Callable[[int, int], bool],
    goes_on: Callable[[ToolCall], bool],
) -> tuple[ToolCall, ...]:
    """Return the attempts of a turn, for grammars that can tell which delimiters are in values.

    `has_closer` says whether a closer is between two offsets; without an open call, it refuses the
    calls before it. `goes_on` says whether an attempt may continue; if so, it refuses later calls.
    """
    turn: list[Piece] = []
    is_open, refused = False, 0
    for piece in found:
        turn.append(_without(piece, _QUOTED) if is_open else piece)
        is_open |= any(map(goes_on, piece.calls))
        if not piece.calls and not piece.is_thought and has_closer(piece.start, piece.end):
            turn[refused:] = [_without(before, _STRAY) for before in turn[refused:]]
            refused = len(turn)
    return calls_of(turn)


def calls_of(found: Iterable[Piece]) -> tuple[ToolCall, ...]:
    """Return the attempts in these pieces."""
    return tuple(call for piece in found for call in piece.calls)


def is_unclosed(call: ToolCall) -> bool:
    """Return whether an attempt has no end."""
    return call.status is CallStatus.UNCLOSED


def _is_odd(text: str, quote: str) -> bool:
    """Return whether a text ends inside a string, judging by its quotes."""
    return (text.count(quote) - text.count(f"\\{quote}")) % 2 == 1


def _without(piece: Piece, problem: str) -> Piece:
    """Return the piece with all of its calls refused."""
    return replace(piece, calls=tuple(unless_refused(call, problem) for call in piece.calls))
