"""Grammars of `<invoke name="…">` and `<parameter name="…">`: MiniMax M2 and DeepSeek V3.2 (DSML).

    <minimax:tool_call>
    <invoke name="NAME">
    <parameter name="KEY">VALUE</parameter>
    </invoke>
    </minimax:tool_call>

Several invocations may stand in one block. DSML says of each value whether it is a string; MiniMax
leaves that to the tool's schema. A value is all of what is between its tags; a closing tag counts
only where what the grammar wants next follows it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from swe_rollout.agent.parsers.base import (
    Attempt,
    Delimiters,
    ToolCallParser,
    attempts,
    checked,
    told,
    tool_named,
    typed,
)
from swe_rollout.agent.parsers.strict_json import read_json
from swe_rollout.trajectory import CallStatus, ToolCall

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from swe_rollout.agent.parsers.base import Reasoning, SampledText
    from swe_rollout.agent.tools.base import ToolSpec


@dataclass(frozen=True, slots=True)
class InvokeGrammar:
    """One family's words for block, invocation and parameter."""

    block: Delimiters
    prefix: str
    """Of the tags inside, behind their `<` or `</`."""
    says_string: bool
    """Whether each parameter says itself if its value is a string."""

    def invocation(self) -> re.Pattern[str]:
        """An opening tag with the name of a tool."""
        return re.compile(rf'\s*<{self.prefix}invoke(?: name="([^"\n]*)")?\s*>')

    def parameter(self) -> re.Pattern[str]:
        """A parameter with its name, its kind and its value."""
        kind = ' string="(true|false)"' if self.says_string else "()"
        following = rf"(?=\s*(?:<{self.prefix}parameter\b|</{self.prefix}invoke>))"
        return re.compile(
            rf'\s*<{self.prefix}parameter name="([^"\n]+)"{kind}\s*>'
            rf"(.*?)</{self.prefix}parameter>{following}",
            re.DOTALL,
        )

    def end(self) -> re.Pattern[str]:
        """The closing tag of an invocation."""
        return re.compile(rf"\s*</{self.prefix}invoke>")


MINIMAX = InvokeGrammar(
    Delimiters("<minimax:tool_call>", "</minimax:tool_call>"), "", says_string=False
)
DSML = InvokeGrammar(
    Delimiters("<｜DSML｜function_calls>", "</｜DSML｜function_calls>"),
    "｜DSML｜",
    says_string=True,
)


class InvokeParser(ToolCallParser):
    """Reads blocks of invocations."""

    def __init__(self, grammar: InvokeGrammar) -> None:
        self._grammar = grammar

    def parse(
        self, sampled: SampledText, *, tools: Sequence[ToolSpec], reasoning: Reasoning
    ) -> tuple[ToolCall, ...]:
        """Every attempt outside the reasoning, in order."""
        calls: list[ToolCall] = []
        block = self._grammar.block

        def read(start: int) -> Attempt:
            found = _Block(sampled, start, self._grammar, tools)
            calls.extend(found.calls())
            return Attempt(calls[-1], found.behind)

        attempts(sampled, block, read, reasoning=reasoning)
        return tuple(calls)


class _MalformedError(Exception):
    """The tags are not those of the grammar; the text says where."""


class _Block:
    """One block: its invocations, and where the text goes on behind it."""

    def __init__(
        self,
        sampled: SampledText,
        start: int,
        grammar: InvokeGrammar,
        tools: Sequence[ToolSpec],
    ) -> None:
        self._sampled, self._grammar, self._tools = sampled, grammar, tools
        self._start = start
        closer = self._closer()
        self._is_closed = closer is not None
        following = sampled.find(grammar.block.opener, start)
        unclosed_end = len(sampled.text) if following is None else following
        self._end = unclosed_end if closer is None else closer
        self.behind = self._end + (len(grammar.block.closer) if self._is_closed else 0)

    def _closer(self) -> int | None:
        """The first closer behind an invocation's end: any other one lies in a value."""
        sampled, block = self._sampled, self._grammar.block
        at = sampled.find(block.closer, self._start)
        last = f"</{self._grammar.prefix}invoke>"
        first = at
        while at is not None:
            if sampled.text[self._start : at].rstrip().endswith(last):
                return at
            at = sampled.find(block.closer, at + 1)
        return first

    def calls(self) -> Iterator[ToolCall]:
        """Every invocation; what is none is one attempt that says why."""
        text, at = self._sampled.text, self._start
        while at == self._start or text[at : self._end].strip():
            begin = at
            try:
                call, at = self._call(at)
            except _MalformedError as error:
                yield self._refused(begin, str(error))
                return
            if not self._is_closed:
                yield self._refused(begin, "")
                continue
            yield replace(call, span=self._sampled.span(begin, at))

    def _call(self, start: int) -> tuple[ToolCall, int]:
        grammar, text = self._grammar, self._sampled.text
        opened = grammar.invocation().match(text, start, self._end)
        if opened is None:
            raise _MalformedError(f'it must begin with <{grammar.prefix}invoke name="NAME">')
        tool = tool_named(opened[1] or "", self._tools)
        arguments: dict[str, object] = {}
        at = opened.end()
        parameter = grammar.parameter()
        while found := parameter.match(text, at, self._end):
            name, kind, value = found[1], found[2], found[3]
            if name in arguments:
                raise _MalformedError(f"the parameter {name} appears twice")
            if f"<{grammar.prefix}parameter name=" in value:
                raise _MalformedError(f"the parameter {name} is not closed")
            arguments[name] = _value(value, name, kind, tool)
            at = found.end()
        closed = grammar.end().match(text, at, self._end)
        if closed is None:
            raise _MalformedError(
                f"only parameters, each closed, may come before </{grammar.prefix}invoke>"
            )
        raw = text[start : closed.end()].strip()
        if not opened[1]:
            problem = told("it does not name a tool")
            return ToolCall(CallStatus.MISSING_NAME, raw, problem=problem), closed.end()
        return checked(opened[1], arguments, tools=self._tools, raw=raw), closed.end()

    def _refused(self, start: int, problem: str) -> ToolCall:
        status = CallStatus.MALFORMED if self._is_closed else CallStatus.UNCLOSED
        if not self._is_closed:
            problem = f"it is not closed by {self._grammar.block.closer}"
        return ToolCall(
            status,
            self._sampled.text[start : self._end],
            problem=told(problem),
            span=self._sampled.span(start, max(self._end, start + 1)),
        )


def _value(text: str, name: str, kind: str, tool: ToolSpec | None) -> object:
    match kind:
        case "true":
            return text
        case "false":
            try:
                return read_json(text).whole
            except ValueError as error:
                raise _MalformedError(f"the parameter {name} is no JSON: {error}") from error
        case _:
            return typed(text, name, tool)
