"""Grammars of `<invoke name="…">` and `<parameter name="…">`: MiniMax M2 and DeepSeek V3.2 (DSML).

    <minimax:tool_call>
    <invoke name="NAME">
    <parameter name="KEY">VALUE</parameter>
    </invoke>
    </minimax:tool_call>

Several invocations may stand in one block, and nothing else: words among them may be the rest of a
value that was cut short, so they refuse every call of their block. DSML says of each value whether
it is a string; MiniMax leaves that to the tool's schema. `tags` says where a value ends.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from swe_rollout.agent.parsers.base import (
    Delimiters,
    Found,
    MalformedError,
    Mark,
    Reasoning,
    SampledText,
    ToolCallParser,
    checked,
    not_run,
    pieces,
    tool_named,
    typed,
)
from swe_rollout.agent.parsers.exact_calls import LeftOvers
from swe_rollout.agent.parsers.strict_json import read_json, skip_space
from swe_rollout.agent.parsers.tags import WS, Offsets, Values, ValueTags, parameters_of
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.types.turn import CallStatus, ToolCall


@dataclass(frozen=True, slots=True)
class InvokeGrammar:
    """One family's tags for block, invocation and parameter."""

    block: Delimiters
    prefix: str
    """Of the tags inside, behind their `<` or `</`."""
    says_string: bool
    """Whether each parameter marks itself if its value is a string."""

    @property
    def closers(self) -> tuple[str, ...]:
        """All closing tags."""
        return f"</{self.prefix}parameter>", f"</{self.prefix}invoke>", self.block.closer

    @property
    def invocation(self) -> str:
        """Match an opening tag with the name of a tool."""
        return rf'<{self.prefix}invoke(?: name="([^"<>\n]*)")?{WS}>'

    @property
    def argument(self) -> str:
        """Match the opening tag of a parameter, with its name and, in DSML, its kind."""
        return WS + self._parameter('([^"<>\n]+)', "(true|false)")

    @property
    def end(self) -> str:
        """Match the closing tag of an invocation, if its block goes on or ends behind it."""
        block = f"{self.block.opener}|{self.block.closer}"
        return rf"</{self.prefix}invoke>(?={WS}(?:<{self.prefix}invoke\b|{block}|\Z))"

    @property
    def values(self) -> ValueTags:
        """The tags of values; those of XML in a value may have other attributes too."""
        named = self._parameter('(?P<name>[^"<>\n]+)', "(?:true|false)")
        other = rf"<{self.prefix}parameter\b[^<>]*+(?<!/)>"
        following = self._parameter('[^"<>\n]+', "(?:true|false)")
        return ValueTags(
            opener=f"{named}|{other}",
            closer=f"</{self.prefix}parameter>",
            following=f"{following}|{self.end}",
            call_end=f"</{self.prefix}invoke>",
        )

    def _parameter(self, name: str, kind: str) -> str:
        said = f' string="{kind}"' if self.says_string else ""
        return rf'<{self.prefix}parameter name="{name}"{said}{WS}>'


_MINIMAX = InvokeGrammar(
    Delimiters("<minimax:tool_call>", "</minimax:tool_call>"), "", says_string=False
)
_DSML = InvokeGrammar(
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
        grammar = self._grammar
        # The tags of DSML have one token each, and are none: a tag that is spelled is text.
        own = (grammar.prefix,) if grammar.prefix else ()
        tags = sampled.without_spelled(*own, grammar.block.opener, *grammar.closers)
        values = grammar.values.find(tags.text)
        ends = Offsets.of(grammar.end, tags.text)
        blocks = _Blocks(tags, sampled.text, grammar, values, ends, tools)
        found = pieces(
            tags,
            lambda at: tags.first((grammar.block.opener,), at),
            blocks.read,
            reasoning=reasoning,
        )
        return LeftOvers(tags, values, grammar.closers).refuse(found)


class _BrokenError(Exception):
    """The tags are not those of the grammar, or a value is not what it claims."""

    def __init__(self, status: CallStatus, problem: str) -> None:
        super().__init__(problem)
        self.status = status


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Reads blocks of one turn."""

    tags: SampledText
    """The turn without tags that are only spelled; offsets are searched here."""
    text: str
    """The turn; values are taken from here."""
    grammar: InvokeGrammar
    values: Values
    ends: Offsets
    """Of invocations."""
    tools: Sequence[ToolSpec]

    def read(self, opener: Mark) -> Found:
        """Read every invocation of a block."""
        calls: list[ToolCall] = []
        at, words, closer = opener.end, False, f"</{self.grammar.prefix}invoke>"
        while (stop := self._stop(at)) is None:
            start = skip_space(self.text, at)
            if self.tags.text.startswith(f"<{self.grammar.prefix}invoke", start):
                found = self._invocation(start)
                span = self.tags.span(start, found.end)
                calls += [replace(call, span=span) for call in found.calls]
                at = found.end
                # What follows one that is not closed may be part of its value.
                words |= not self.tags.text.endswith(closer, 0, at)
            else:
                words, at = True, self._next(start)
        if not calls:
            raw = self.text[opener.end : stop.start].strip()
            problem = not_run(f'it must hold <{self.grammar.prefix}invoke name="NAME">')
            calls = [ToolCall(CallStatus.MALFORMED, raw, problem=problem)]
        if words:
            calls = list(map(self._among_words, calls))
        if stop.token == self.grammar.block.closer:
            return Found(tuple(calls), stop.end)
        return Found(tuple(map(self._unclosed, calls)), stop.start)

    def _stop(self, start: int) -> Mark | None:
        """Return the end of the block, if it comes next: its closer, another block, or the turn."""
        block, at = self.grammar.block, skip_space(self.text, start)
        if at == len(self.text):
            return Mark(at, "")
        mark = self.tags.first((block.closer, block.opener), at)
        return mark if mark is not None and mark.start == at else None

    def _next(self, start: int) -> int:
        """Return where an invocation, or the end of the block, may come behind `start`."""
        block = self.grammar.block
        delimiters = (f"<{self.grammar.prefix}invoke", block.closer, block.opener)
        mark = self.tags.first(delimiters, start + 1)
        return len(self.text) if mark is None else mark.start

    def _among_words(self, call: ToolCall) -> ToolCall:
        if call.status is not CallStatus.OK:
            return call
        problem = not_run("there may be nothing but invocations in their block")
        return replace(call, status=CallStatus.MALFORMED, arguments={}, problem=problem)

    def _unclosed(self, call: ToolCall) -> ToolCall:
        problem = not_run(f"it is not closed by {self.grammar.block.closer}")
        return replace(call, status=CallStatus.UNCLOSED, arguments={}, problem=problem)

    def _invocation(self, start: int) -> Found:
        opened = re.compile(self.grammar.invocation).match(self.tags.text, start)
        if opened is None:
            problem = f'it must begin with <{self.grammar.prefix}invoke name="NAME">'
            return self._broken(start, ToolCall(CallStatus.MALFORMED, "", problem=not_run(problem)))
        name = opened[1] or ""
        try:
            arguments, end = self._arguments(opened.end(), tool_named(name, self.tools))
        except _BrokenError as error:
            return self._broken(
                start, ToolCall(error.status, "", name, problem=not_run(str(error)))
            )
        raw = self.text[start:end]
        if name:
            return Found((checked(name, arguments, tools=self.tools, raw=raw),), end)
        problem = not_run("it does not name a tool")
        return Found((ToolCall(CallStatus.MISSING_NAME, raw, problem=problem),), end)

    def _broken(self, start: int, call: ToolCall) -> Found:
        """Refuse an invocation up to its closing tag, or to where the next one may begin."""
        closer = f"</{self.grammar.prefix}invoke>"
        end, closed = self._next(start), self.tags.find(closer, start)
        end = end if closed is None else min(end, closed + len(closer))
        return Found((replace(call, raw=self.text[start:end].strip()),), end)

    def _arguments(self, start: int, tool: ToolSpec | None) -> tuple[dict[str, object], int]:
        """Read parameters; also return the offset behind the invocation."""
        prefix, limit = self.grammar.prefix, self.ends.next(start)
        argument = re.compile(self.grammar.argument)
        arguments: dict[str, object] = {}
        at = start
        while found := argument.match(self.tags.text, at):
            name, begin = found[1], found.end()
            shown, opener = name[:80], skip_space(self.text, at)
            end = self.values.end(opener, begin, len(self.text) if limit is None else limit)
            if name in arguments:
                raise _BrokenError(CallStatus.MALFORMED, f"the parameter {shown} appears twice")
            if end is None:
                raise _BrokenError(CallStatus.MALFORMED, f"the parameter {shown} is not closed")
            self._check(name, begin, end, tool)
            kind = found[2] if self.grammar.says_string else ""
            arguments[name] = _value(self.text[begin:end], name, kind, tool)
            at = end + len(f"</{prefix}parameter>")
        at, closer = skip_space(self.text, at), f"</{prefix}invoke>"
        if not self.tags.text.startswith(closer, at):
            problem = f"only parameters, each closed, may come before {closer}"
            raise _BrokenError(CallStatus.MALFORMED, problem)
        return arguments, at + len(closer)

    def _check(self, name: str, start: int, end: int, tool: ToolSpec | None) -> None:
        invocation = self.tags.find(f"<{self.grammar.prefix}invoke", start)
        holds_call = invocation is not None and invocation < end
        try:
            self.values.check(name, start, end, None if holds_call else parameters_of(tool))
        except MalformedError as error:
            raise _BrokenError(CallStatus.MALFORMED, str(error)) from error


def _value(text: str, name: str, is_text: str, tool: ToolSpec | None) -> object:
    match is_text:
        case "true":
            return text
        case "false":
            try:
                return read_json(text).whole
            except ValueError as error:
                problem = f"of the parameter {name[:80]}, {error}"
                raise _BrokenError(CallStatus.INVALID_JSON, problem) from error
        case _:
            return typed(text, name, tool)


MINIMAX_M2 = InvokeParser(_MINIMAX)
DEEPSEEK_V32 = InvokeParser(_DSML)
