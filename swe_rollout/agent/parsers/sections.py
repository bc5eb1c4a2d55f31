"""Grammars that put calls into a section: Kimi K2 and DeepSeek V3 and V3.1.

Section and call have delimiters, which are tokens; what is between those of a call differs. A
section that is never closed holds no complete call.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from swe_rollout.agent.parsers.base import (
    Delimiters,
    Found,
    Mark,
    ToolCallParser,
    attempts,
    told,
)
from swe_rollout.agent.parsers.json_call import call_of_text
from swe_rollout.trajectory import CallStatus, ToolCall

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from swe_rollout.agent.parsers.base import Reasoning, SampledText
    from swe_rollout.agent.tools.base import ToolSpec


@dataclass(frozen=True, slots=True)
class Body:
    """What stands between the delimiters of one call, taken apart."""

    name: str
    arguments: str
    """JSON."""
    id: str = ""


@dataclass(frozen=True, slots=True)
class SectionGrammar:
    """One family's delimiters, and how it writes a call between them."""

    section: Delimiters
    call: Delimiters
    separator: str
    body: Callable[[str, str], Body | str]
    """The texts before and behind the separator to a body, or to what is wrong with them."""


def _kimi_body(head: str, arguments: str) -> Body | str:
    found = re.fullmatch(r"functions\.([^\s:]+):(\d+)", head.strip())
    if found is None:
        return "it must begin with functions.NAME:INDEX"
    return Body(found[1], arguments, head.strip())


def _deepseek_v3_body(head: str, rest: str) -> Body | str:
    found = re.fullmatch(r"([^\n]+)\n```json\n(.*)\n```\s*", rest, re.DOTALL)
    if head.strip() != "function" or found is None:
        return "it must be `function`, the separator, NAME, and JSON in a fence of its own lines"
    return Body(found[1].strip(), found[2])


def _deepseek_v31_body(head: str, arguments: str) -> Body | str:
    return (
        Body(head.strip(), arguments) if head.strip() else "it must begin with the name of a tool"
    )


KIMI = SectionGrammar(
    Delimiters("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    Delimiters("<|tool_call_begin|>", "<|tool_call_end|>"),
    "<|tool_call_argument_begin|>",
    _kimi_body,
)
_DEEPSEEK_SECTION = Delimiters("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
_DEEPSEEK_CALL = Delimiters("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>")
_DEEPSEEK_SEPARATOR = "<｜tool▁sep｜>"
DEEPSEEK_V3 = SectionGrammar(
    _DEEPSEEK_SECTION, _DEEPSEEK_CALL, _DEEPSEEK_SEPARATOR, _deepseek_v3_body
)
DEEPSEEK_V31 = SectionGrammar(
    _DEEPSEEK_SECTION, _DEEPSEEK_CALL, _DEEPSEEK_SEPARATOR, _deepseek_v31_body
)


class SectionParser(ToolCallParser):
    """Reads calls in sections."""

    def __init__(self, grammar: SectionGrammar) -> None:
        self._grammar = grammar

    def parse(
        self, sampled: SampledText, *, tools: Sequence[ToolSpec], reasoning: Reasoning
    ) -> tuple[ToolCall, ...]:
        """Every attempt outside the reasoning, in order; also one outside any section."""
        grammar = self._grammar
        openers = (grammar.section.opener, grammar.call.opener)

        def read(opener: Mark) -> Found:
            if opener.token == grammar.section.opener:
                return _section(sampled, opener, grammar, tools)
            return _stray(sampled, opener, grammar)

        return attempts(sampled, lambda at: sampled.first(openers, at), read, reasoning=reasoning)


def _section(
    sampled: SampledText, opener: Mark, grammar: SectionGrammar, tools: Sequence[ToolSpec]
) -> Found:
    ending = sampled.first((grammar.section.closer, grammar.section.opener), opener.end)
    is_closed = ending is not None and ending.token == grammar.section.closer
    end = len(sampled.text) if ending is None else ending.start
    calls = _calls(sampled, opener.end, end, grammar, tools)
    if not is_closed:
        calls = [_unclosed(call) for call in calls]
    if not calls:
        calls = [_empty(sampled.text[opener.end : end], closed=is_closed)]
    return Found(tuple(calls), ending.end if ending is not None and is_closed else end)


def _stray(sampled: SampledText, opener: Mark, grammar: SectionGrammar) -> Found:
    call, section = grammar.call, grammar.section
    mark = sampled.first((call.closer, call.opener, section.opener), opener.end)
    end = len(sampled.text) if mark is None else mark.start
    problem = told(f"it must stand behind {section.opener}")
    attempt = ToolCall(CallStatus.MALFORMED, sampled.text[opener.end : end], problem=problem)
    return Found((attempt,), mark.end if mark is not None and mark.token == call.closer else end)


def _calls(
    sampled: SampledText,
    start: int,
    end: int,
    grammar: SectionGrammar,
    tools: Sequence[ToolSpec],
) -> list[ToolCall]:
    calls: list[ToolCall] = []
    at = start
    while (opener := _inside(sampled, (grammar.call.opener,), at, end)) is not None:
        is_stray = bool(sampled.text[at : opener.start].strip())
        mark = _inside(sampled, (grammar.call.closer, grammar.call.opener), opener.end, end)
        if mark is None or mark.token != grammar.call.closer:
            at = end if mark is None else mark.start
            call = _unclosed(ToolCall(CallStatus.UNCLOSED, sampled.text[opener.end : at]))
        else:
            at = mark.end
            call = _call(sampled, opener.end, mark.start, grammar, tools)
        calls.append(
            replace(_among_words(call) if is_stray else call, span=sampled.span(opener.start, at))
        )
    if calls and sampled.text[at:end].strip():
        calls[-1] = _among_words(calls[-1])
    return calls


def _among_words(call: ToolCall) -> ToolCall:
    problem = told("there may be nothing but calls in their section")
    return replace(call, status=CallStatus.MALFORMED, arguments={}, problem=problem)


def _call(
    sampled: SampledText,
    start: int,
    end: int,
    grammar: SectionGrammar,
    tools: Sequence[ToolSpec],
) -> ToolCall:
    raw = sampled.text[start:end]
    separator = _inside(sampled, (grammar.separator,), start, end)
    if separator is None:
        problem = told(f"name and arguments must be parted by {grammar.separator}")
        return ToolCall(CallStatus.MALFORMED, raw, problem=problem)
    head = sampled.text[start : separator.start]
    rest = sampled.text[separator.start + len(grammar.separator) : end]
    body = grammar.body(head, rest)
    if isinstance(body, str):
        status = CallStatus.MALFORMED if head.strip() else CallStatus.MISSING_NAME
        return ToolCall(status, raw, problem=told(body))
    return replace(call_of_text(body.name, body.arguments, tools=tools, raw=raw), id=body.id)


def _inside(sampled: SampledText, delimiters: tuple[str, ...], start: int, end: int) -> Mark | None:
    mark = sampled.first(delimiters, start)
    return mark if mark is not None and mark.start < end else None


def _unclosed(call: ToolCall) -> ToolCall:
    problem = told("it, or its section, is not closed")
    return replace(call, status=CallStatus.UNCLOSED, arguments={}, problem=problem)


def _empty(raw: str, *, closed: bool) -> ToolCall:
    status = CallStatus.MALFORMED if closed else CallStatus.UNCLOSED
    problem = told("its section holds no call" if closed else "its section is not closed")
    return ToolCall(status, raw, problem=problem)
