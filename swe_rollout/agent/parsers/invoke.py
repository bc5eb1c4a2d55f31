"""Grammars of `<invoke name="…">` and `<parameter name="…">`: MiniMax's and DeepSeek's (DSML).

    <minimax:tool_call>
    <invoke name="NAME">
    <parameter name="KEY">VALUE</parameter>
    </invoke>
    </minimax:tool_call>

A block may contain several invocations and nothing else: any other text may be the rest of a value
that was cut short, so it refuses every call of the block. DSML marks each value as a string or not;
the others leave that to the tool's schema. `tags` finds the end of a value.
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
    Refusal,
    SampledText,
    ToolCallParser,
    checked,
    not_run,
    pieces,
    tool_named,
    typed,
    unless_refused,
)
from swe_rollout.agent.parsers.element import ArgumentTags, TaggedTurn
from swe_rollout.agent.parsers.exact_calls import LeftOvers, calls_of
from swe_rollout.agent.parsers.strict_json import read_json, skip_space
from swe_rollout.agent.parsers.tags import WS, Offsets, ValueTags
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.types.turn import CallStatus, ToolCall


@dataclass(frozen=True, slots=True)
class InvokeGrammar(ToolCallParser):
    """Reads the blocks of invocations of one family."""

    block: Delimiters
    prefix: str = ""
    """The prefix of tag names inside a block, after `<` or `</`."""
    says_string: bool = False
    """Whether each parameter states whether its value is a string."""

    def parse(
        self, sampled: SampledText, *, tools: Sequence[ToolSpec], reasoning: Reasoning
    ) -> tuple[ToolCall, ...]:
        closers = (f"</{self.prefix}parameter>", self._closer, self.block.closer)
        # Only the prefix of DSML's tags is a token; a tag that is spelled out is text.
        own = (self.prefix,) if self.prefix else ()
        tags = sampled.without_spelled(*own, self.block.opener, *closers)
        block = f"{self.block.opener}|{self.block.closer}"
        end = rf"{self._closer}(?={WS}(?:{self._opener}\b|{block}|\Z))"
        # XML tags in a value may have other attributes too.
        other = rf"<{self.prefix}parameter\b[^<>]*+(?<!/)>"
        opener, following = self._parameter(), self._parameter().replace("?P<name>", "?:")
        values = ValueTags(f"{opener}|{other}", closers[0], f"{following}|{end}", self._closer)
        turn = TaggedTurn(sampled, tags, values.find(tags.text), Offsets.of(end, tags.text), tools)
        found = pieces(
            tags,
            lambda at: tags.first((self.block.opener,), at),
            lambda mark: self._block(turn, mark),
            reasoning=reasoning,
        )
        return calls_of(LeftOvers(tags, turn.values, closers).refuse(found))

    @property
    def _opener(self) -> str:
        return f"<{self.prefix}invoke"

    @property
    def _closer(self) -> str:
        return f"</{self.prefix}invoke>"

    def _parameter(self, kind: str = "(?:true|false)") -> str:
        said = f' string="{kind}"' if self.says_string else ""
        return rf'<{self.prefix}parameter name="(?P<name>[^"<>\n]+)"{said}{WS}>'

    def _block(self, turn: TaggedTurn, opener: Mark) -> Found:
        """Read every invocation of a block."""
        calls: list[ToolCall] = []
        at, words, text = opener.end, False, turn.sampled.text
        while (stop := self._stop(turn, at)) is None:
            start = skip_space(text, at)
            if turn.tags.text.startswith(self._opener, start):
                call, at = self._invocation(turn, start)
                calls.append(replace(call, span=turn.tags.span(start, at)))
                # Text after an unclosed invocation may be part of its value.
                words |= not turn.tags.text.endswith(self._closer, 0, at)
            else:
                words, at = True, self._next(turn, start)
        if not calls:
            raw = text[opener.end : stop.start].strip()
            problem = f'it must hold {self._opener} name="NAME">'
            calls = [Refusal(CallStatus.MALFORMED, problem).call(raw)]
        if words:
            problem = not_run("there may be nothing but invocations in their block")
            calls = [unless_refused(call, problem) for call in calls]
        if stop.token == self.block.closer:
            return Found(tuple(calls), stop.end)
        problem = not_run(f"it is not closed by {self.block.closer}")
        open_calls = (
            replace(call, status=CallStatus.UNCLOSED, arguments={}, problem=problem)
            for call in calls
        )
        return Found(tuple(open_calls), stop.start)

    def _stop(self, turn: TaggedTurn, start: int) -> Mark | None:
        """Return the end of the block if it is next: its closer, another block, or end of turn."""
        at = skip_space(turn.sampled.text, start)
        if at == len(turn.sampled.text):
            return Mark(at, "")
        mark = turn.tags.first((self.block.closer, self.block.opener), at)
        return mark if mark is not None and mark.start == at else None

    def _next(self, turn: TaggedTurn, start: int) -> int:
        """Return the offset after `start` at which an invocation or the block's end may be."""
        mark = turn.tags.first((self._opener, self.block.closer, self.block.opener), start + 1)
        return len(turn.sampled.text) if mark is None else mark.start

    def _invocation(self, turn: TaggedTurn, start: int) -> tuple[ToolCall, int]:
        """Read a call; return it and the offset after it."""
        pattern = rf'{self._opener}(?: name="([^"<>\n]*)")?{WS}>'
        head = re.compile(pattern).match(turn.tags.text, start)
        name = (head[1] or "") if head else ""
        try:
            arguments, end = self._arguments(turn, head, tool_named(name, turn.tools))
        except MalformedError as error:
            # Up to its closing tag, or to where the next invocation may start.
            end, closed = self._next(turn, start), turn.tags.find(self._closer, start)
            end = end if closed is None else min(end, closed + len(self._closer))
            raw = turn.sampled.text[start:end].strip()
            return Refusal(error.status, str(error), name).call(raw), end
        raw = turn.sampled.text[start:end]
        if name:
            return checked(name, arguments, tools=turn.tools, raw=raw), end
        return Refusal(CallStatus.MISSING_NAME, "it does not name a tool").call(raw), end

    def _arguments(
        self, turn: TaggedTurn, head: re.Match[str] | None, tool: ToolSpec | None
    ) -> tuple[dict[str, object], int]:
        """Read the parameters after a head; return them and the end of the invocation."""
        if head is None:
            raise MalformedError(f'it must begin with {self._opener} name="NAME">')
        limit = turn.ends.next(head.end())
        tags = ArgumentTags(
            self._parameter("(?P<kind>true|false)"),
            f"</{self.prefix}parameter>",
            noun="parameter",
            call_opener=self._opener,
        )
        arguments, at = tags.read(
            turn,
            head.end(),
            limit=len(turn.sampled.text) if limit is None else limit,
            tool=tool,
            value=lambda tag, text: _value(text, tag, tool),
        )
        at = skip_space(turn.sampled.text, at)
        if not turn.tags.text.startswith(self._closer, at):
            raise MalformedError(f"only parameters, each closed, may come before {self._closer}")
        return arguments, at + len(self._closer)


def _value(text: str, tag: re.Match[str], tool: ToolSpec | None) -> object:
    match tag.groupdict().get("kind"):
        case "true":
            return text
        case "false":
            try:
                return read_json(text).whole
            except ValueError as error:
                problem = f"of the parameter {tag['name'][:80]}, {error}"
                raise MalformedError(problem, CallStatus.INVALID_JSON) from error
        case _:
            return typed(text, tag["name"], tool)


def _dsml(block: str) -> InvokeGrammar:
    return InvokeGrammar(Delimiters(f"<{block}>", f"</{block}>"), "｜DSML｜", says_string=True)


DEEPSEEK_V32 = _dsml("｜DSML｜function_calls")
DEEPSEEK_V4 = _dsml("｜DSML｜tool_calls")
MINIMAX_M2 = InvokeGrammar(Delimiters("<minimax:tool_call>", "</minimax:tool_call>"))
MUSE = InvokeGrammar(Delimiters("<atem:function_calls>", "</atem:function_calls>"), "atem:")
