"""Refuse calls behind an observation that the policy has made up.

Where results come as text, an engine with the stop string `Observation:` would have ended the turn
there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from swe_rollout.agent.parsers.base import Mark, Piece, Reasoning, Refusal, SampledText
from swe_rollout.agent.parsers.exact_calls import WELL_FORMED
from swe_rollout.agent.parsers.strict_json import skip_space
from swe_rollout.agent.parsers.tags import Offsets
from swe_rollout.types.turn import CallStatus, ToolCall

_OBSERVED: Final = "Observation:"
_PROBLEM: Final = "an observation before it was made up; stop after a call"


def line_marks(
    sampled: SampledText, mark: str, reasoning: Reasoning
) -> Callable[[int], Mark | None]:
    """Return what finds the next mark at the start of a line, or first behind the reasoning."""
    text, starts = sampled.text, Offsets.of(f"(?m)^{re.escape(mark)}", sampled.text)

    def begins(at: int) -> Mark | None:
        if text.endswith(reasoning.closer, 0, at):
            first = skip_space(text, at)
            if text.startswith(mark, first):
                return Mark(first, mark)
        start = starts.next(at)
        return None if start is None else Mark(start, mark)

    return begins


def refuse_made_up(
    sampled: SampledText, found: Iterable[Piece], reasoning: Reasoning
) -> tuple[ToolCall, ...]:
    """Return the attempts of a turn, with all behind an observation as one that can't run.

    An observation within the reasoning or within a whole call is only quoted.
    """
    observes, is_made_up, calls = line_marks(sampled, _OBSERVED, reasoning), False, list[ToolCall]()
    for piece in found:
        if is_made_up and piece.calls:
            end = len(sampled.text)
            call = Refusal(CallStatus.MALFORMED, _PROBLEM).call(sampled.text[piece.start :].strip())
            return (*calls, replace(call, span=sampled.span(piece.start, end)))
        calls += piece.calls
        if not piece.is_thought and (not piece.calls or any(map(_is_broken, piece.calls))):
            mark = observes(piece.start)
            is_made_up |= mark is not None and mark.start < piece.end
    return tuple(calls)


def _is_broken(call: ToolCall) -> bool:
    return call.status not in WELL_FORMED
