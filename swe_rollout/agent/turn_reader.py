"""Read a sampled turn: its text, the calls in it, and whether its reasoning is still open.

Nothing that a policy writes raises here or costs more than its length. Used by `context`.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from swe_rollout.agent.parsers import parser_for
from swe_rollout.agent.parsers.base import (
    Reasoning,
    SampledText,
    ToolCallParser,
    not_run,
    reasoning_is_open,
)
from swe_rollout.agent.renderer import Renderer
from swe_rollout.agent.taken_turn import SampledTurn
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.types.episode import StopReason
from swe_rollout.types.turn import CallStatus, TokenSpan, ToolCall

MAX_CALLS = 128
"""Attempts that are answered in one turn; each costs a result in the next prompt."""

log = structlog.get_logger()


def read_turn(
    renderer: Renderer, ids: Sequence[int], *, tools: Sequence[ToolSpec], opens_reasoning: bool
) -> SampledTurn:
    """Read a turn that ended by itself. `opens_reasoning`: whether its prompt opened it."""
    sampled = renderer.sampled(ids)
    reasoning = renderer.reasoning(opened=opens_reasoning)
    calls = _bounded(_calls(renderer.parser, renderer.tool_format, sampled, tools, reasoning))
    stop = None if calls else StopReason.FINISHED
    return SampledTurn(renderer.decode(ids), words_of(sampled, reasoning), calls, stop)


def read_cut_turn(renderer: Renderer, ids: Sequence[int], *, opens_reasoning: bool) -> SampledTurn:
    """Read a turn that was cut: it may hold half a call, so nothing in it is run."""
    reasoning, sampled = renderer.reasoning(opened=opens_reasoning), renderer.sampled(ids)
    return SampledTurn(
        renderer.decode(ids),
        words_of(sampled, reasoning),
        (cut_call(len(ids)),),
        reasoning_is_open=reasoning_is_open(sampled, reasoning),
    )


def words_of(sampled: SampledText, reasoning: Reasoning) -> str:
    """Return the words of a turn: what stands behind its reasoning, without control tokens."""
    if reasoning_is_open(sampled, reasoning):
        return ""
    _, closer, words = sampled.text.rpartition(reasoning.closer)
    start = len(sampled.text) - len(words) if closer else 0
    pieces: list[str] = []
    for mark in sampled.marks:
        if mark.end > start:
            pieces.append(sampled.text[start : mark.start])
            start = mark.end
    return "".join([*pieces, sampled.text[start:]]).strip()


def calls_in_words(form: str, text: str, tools: Sequence[ToolSpec]) -> tuple[ToolCall, ...]:
    """Return the calls in the words of a message, for a format that stands in them."""
    found = _calls(parser_for(form), form, SampledText(text, ()), tools, Reasoning())
    return _bounded(found)


def _calls(
    parser: ToolCallParser,
    form: str,
    sampled: SampledText,
    tools: Sequence[ToolSpec],
    reasoning: Reasoning,
) -> tuple[ToolCall, ...]:
    try:
        return parser.parse(sampled, tools=tools, reasoning=reasoning)
    except Exception as error:
        # The turn can't be read, whoever is to blame: nothing in it runs, and the episode goes on.
        log.warning(
            "parser_failed",
            tool_format=form,
            error=repr(error)[:500],
            exc_info=True,
        )
        problem = not_run("the turn could not be read; write one plain call")
        return (ToolCall(CallStatus.MALFORMED, sampled.text, problem=problem),)


def _bounded(calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
    """Answer the first calls one by one, and all others with one refusal."""
    if len(calls) <= MAX_CALLS:
        return calls
    first, last = calls[MAX_CALLS].span, calls[-1].span
    span = TokenSpan(first.start, last.end) if first and last else None
    problem = not_run(
        f"a turn may have {MAX_CALLS} calls, and this one and the {len(calls) - MAX_CALLS - 1} "
        "behind it are too many"
    )
    over = ToolCall(CallStatus.MALFORMED, "", problem=problem, span=span)
    return (*calls[:MAX_CALLS], over)


def cut_call(tokens: int) -> ToolCall:
    """Return what stands for the calls of a turn that was cut."""
    problem = (
        f"the turn was cut after {tokens} tokens; nothing in it was run. Say less before a call, "
        "or do it in several steps."
    )
    return ToolCall(CallStatus.UNCLOSED, "", problem=problem)
