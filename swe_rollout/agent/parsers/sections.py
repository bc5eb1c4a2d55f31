"""Grammars that put calls into a section: Kimi K2 and DeepSeek V3 and V3.1.

The delimiters of sections and calls are tokens. The content of a call differs between families, but
it ends in JSON, whose end the decoder finds: a delimiter in one of its strings does not end it. An
unclosed section contains no complete call.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from swe_rollout.agent.parsers.base import (
    Delimiters,
    Found,
    Mark,
    Reasoning,
    Refusal,
    SampledText,
    ToolCallParser,
    attempts,
    not_run,
    unless_refused,
)
from swe_rollout.agent.parsers.json_call import call_of_arguments
from swe_rollout.agent.parsers.strict_json import SPACE, read_json, skip_space
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.types.turn import CallStatus, ToolCall


@dataclass(frozen=True, slots=True)
class SectionGrammar(ToolCallParser):
    """Reads the calls of one family, by its delimiters and how it writes a call between them."""

    section: Delimiters
    call: Delimiters
    separator: str
    before: str
    """Pattern of all text before the separator; a group `name` is the tool's name."""
    rule: str
    """How a call must start, quoted in the error if one does not."""
    after: str = ""
    """Pattern of the text between the separator and the JSON, possibly with the group `name`."""
    has_id: bool = False
    """Whether the text before the separator is the id of the call."""
    tail: str = ""
    """The text after the JSON."""

    def parse(
        self, sampled: SampledText, *, tools: Sequence[ToolSpec], reasoning: Reasoning
    ) -> tuple[ToolCall, ...]:
        openers = (self.section.opener, self.call.opener)
        sections = _Sections(sampled, self, tools)
        return attempts(
            sampled, lambda at: sampled.first(openers, at), sections.read, reasoning=reasoning
        )

    @property
    def delimiters(self) -> tuple[str, ...]:
        """All delimiters but the separator."""
        return self.section.opener, self.section.closer, self.call.opener, self.call.closer


_WORDS = not_run("there may be nothing but calls in their section")


@dataclass(frozen=True, slots=True)
class _Sections:
    """Reads the sections of one turn."""

    sampled: SampledText
    grammar: SectionGrammar
    tools: Sequence[ToolSpec]

    def read(self, opener: Mark) -> Found:
        """Read a section, or refuse a call that is outside of any section."""
        if opener.token == self.grammar.section.opener:
            return self._section(opener)
        problem = f"it must stand behind {self.grammar.section.opener}"
        return self._refused(opener.end, Refusal(CallStatus.MALFORMED, problem))

    def _section(self, opener: Mark) -> Found:
        text, grammar, ends = self.sampled.text, self.grammar, self.grammar.section
        calls: list[ToolCall] = []
        at = opener.end
        while mark := self.sampled.first((grammar.call.opener, ends.closer, ends.opener), at):
            words = text[at : mark.start].strip(SPACE)
            if mark.token != grammar.call.opener:
                break
            found = self._call(mark.end)
            call = replace(found.calls[0], span=self.sampled.span(mark.start, found.end))
            calls.append(unless_refused(call, _WORDS) if words else call)
            at = found.end
        end = len(text) if mark is None else mark.start
        if calls and text[at:end].strip(SPACE):
            calls[-1] = unless_refused(calls[-1], _WORDS)
        if not calls:
            empty = Refusal(CallStatus.MALFORMED, "its section holds no call")
            calls = [empty.call(text[opener.end : end])]
        if mark is None or mark.token != ends.closer:
            return Found(tuple(map(_unclosed, calls)), end)
        return Found(tuple(calls), mark.end)

    def _call(self, start: int) -> Found:
        """Read one call; `start` is the offset after its opener."""
        text, grammar = self.sampled.text, self.grammar
        separator = self.sampled.first((grammar.separator, *grammar.delimiters), start)
        if separator is None or separator.token != grammar.separator:
            problem = f"name and arguments must be parted by {grammar.separator}"
            return self._refused(start, Refusal(CallStatus.MALFORMED, problem))
        before = text[start : separator.start]
        following = self.sampled.first(grammar.delimiters, separator.end)
        limit = following.start if following else len(text)
        first = re.compile(grammar.before, re.DOTALL).fullmatch(text, start, separator.start)
        second = re.compile(grammar.after).match(text, separator.end, limit)
        if first is None or second is None:
            status = CallStatus.MALFORMED if before.strip() else CallStatus.MISSING_NAME
            return self._refused(start, Refusal(status, grammar.rule))
        name = (first.groupdict() | second.groupdict())["name"]
        call_id, invalid = before if grammar.has_id else "", CallStatus.INVALID_JSON
        try:
            found = read_json(text, second.end())
        except ValueError as error:
            return self._refused(start, Refusal(invalid, str(error), name), call_id)
        closer = self._closer(found.end)
        if closer is None:
            problem = "there is more text behind its JSON object"
            refusal = Refusal(invalid, problem, name, known_to=found.end)
            return self._refused(start, refusal, call_id)
        raw = text[start : closer.start]
        call = call_of_arguments(name, found.value, key="arguments", tools=self.tools, raw=raw)
        return Found((replace(call, id=call_id),), closer.end)

    def _closer(self, start: int) -> Mark | None:
        """Return the closer of the call if it is next."""
        text, closer = self.sampled.text, self.grammar.call.closer
        at = skip_space(text, start + len(self.grammar.tail))
        is_next = text.startswith(self.grammar.tail, start) and self.sampled.find(closer, at) == at
        return Mark(at, closer) if is_next else None

    def _refused(self, start: int, refusal: Refusal, call_id: str = "") -> Found:
        """Refuse the text up to the call's closer; it is unclosed if anything else comes first."""
        begin = max(start, refusal.known_to)
        mark = self.sampled.first(self.grammar.delimiters, begin)
        end = len(self.sampled.text) if mark is None else mark.start
        call = refusal.call(self.sampled.text[start:end], call_id)
        if mark is not None and mark.token == self.grammar.call.closer:
            return Found((call,), mark.end)
        return Found((_unclosed(call),), end)


def _unclosed(call: ToolCall) -> ToolCall:
    problem = not_run("it, or its section, is not closed")
    return replace(call, status=CallStatus.UNCLOSED, arguments={}, problem=problem)


_DEEPSEEK_SECTION = Delimiters("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
_DEEPSEEK_CALL = Delimiters("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>")
KIMI_K2 = SectionGrammar(
    Delimiters("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    Delimiters("<|tool_call_begin|>", "<|tool_call_end|>"),
    "<|tool_call_argument_begin|>",
    before=r"functions\.(?P<name>[^\s:]+):[0-9]+",
    rule="it must begin with functions.NAME:INDEX",
    has_id=True,
)
DEEPSEEK_V3 = SectionGrammar(
    _DEEPSEEK_SECTION,
    _DEEPSEEK_CALL,
    "<｜tool▁sep｜>",
    before="function",
    after=r"(?P<name>[^\n]+)\n```json\n",
    rule="it must be `function`, the separator, NAME, and JSON in a fence of its own lines",
    tail="```",
)
DEEPSEEK_V31 = SectionGrammar(
    _DEEPSEEK_SECTION,
    _DEEPSEEK_CALL,
    "<｜tool▁sep｜>",
    before="(?P<name>.+)",
    rule="it must begin with the name of a tool",
)
