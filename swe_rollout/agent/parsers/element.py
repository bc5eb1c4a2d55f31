"""Grammars of a call as one element with an element for each argument; values are plain text.

    <seed:tool_call>
    <function=NAME>
    <parameter=KEY>VALUE</parameter>
    </function>
    </seed:tool_call>

And two with JSON behind a head: `<function=NAME>{…}</function>`, and Solar's, whose parts are
separated by tokens. `tags` says where a plain value ends.
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
    pieces,
    refused,
    tool_named,
    typed,
)
from swe_rollout.agent.parsers.exact_calls import LeftOvers, calls_between
from swe_rollout.agent.parsers.invoke import InvokeGrammar, InvokeParser
from swe_rollout.agent.parsers.json_call import call_of_arguments, status_of
from swe_rollout.agent.parsers.strict_json import read_json
from swe_rollout.agent.parsers.tags import WS, Values, ValueTags
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.types.turn import CallStatus, ToolCall

_CDATA = "<![CDATA["


@dataclass(frozen=True, slots=True)
class ElementGrammar:
    """One family's tags, as patterns except for the delimiters of a call."""

    call: Delimiters
    head: str
    """What names the tool behind the opener; the name is the group."""
    argument: str
    """The opening tag of an argument; its name is the group `name`."""
    closer: str
    """The closing tag of an argument."""
    tail: str = ""
    """What stands before the call's closer."""
    inner: tuple[str, ...] = ()
    """Further delimiters, which may be tokens."""
    has_cdata: bool = False
    """Whether a value may be wrapped in CDATA."""

    @property
    def values(self) -> ValueTags:
        """The tags of values."""
        anonymous = self.argument.replace("?P<name>", "?:")
        end = f"{self.tail}{WS}{self.call.closer}"
        return ValueTags(self.argument, self.closer, f"{anonymous}|{end}", end)


class ElementParser(ToolCallParser):
    """Reads calls of elements."""

    def __init__(self, grammar: ElementGrammar) -> None:
        self._grammar = grammar
        self._values = grammar.values

    def parse(
        self, sampled: SampledText, *, tools: Sequence[ToolSpec], reasoning: Reasoning
    ) -> tuple[ToolCall, ...]:
        grammar = self._grammar
        ends = (grammar.call.opener, grammar.call.closer, grammar.closer, grammar.tail)
        tags = sampled.without_spelled(*ends, *grammar.inner).text
        values = self._values.find(tags)
        turn = _Elements(sampled, tags, grammar, values, tools)
        found = pieces(
            sampled,
            lambda at: sampled.first((grammar.call.opener,), at),
            turn.read,
            reasoning=reasoning,
        )
        closers = (grammar.closer, grammar.call.closer)
        return LeftOvers(sampled, values, closers).refuse(found)


@dataclass(frozen=True, slots=True)
class _Elements:
    sampled: SampledText
    tags: str
    """The turn, without delimiters that are only spelled."""
    grammar: ElementGrammar
    values: Values
    tools: Sequence[ToolSpec]

    def read(self, opener: Mark) -> Found:
        start, call = opener.end, self.grammar.call
        found = re.compile(self.grammar.head).match(self.tags, start)
        if found is None:
            refusal = Refusal(CallStatus.MISSING_NAME, "it must begin with the name of a tool")
            return refused(self.sampled, start, call, refusal)
        try:
            arguments, end = self._arguments(found.end(), tool_named(found[1], self.tools))
        except MalformedError as error:
            refusal = Refusal(CallStatus.MALFORMED, str(error), found[1])
            return refused(self.sampled, start, call, refusal)
        raw = self.sampled.text[start : end - len(call.closer)]
        return Found((checked(found[1], arguments, tools=self.tools, raw=raw),), end)

    def _arguments(self, start: int, tool: ToolSpec | None) -> tuple[dict[str, object], int]:
        """Read arguments; also return the offset behind the call."""
        grammar, arguments, at = self.grammar, dict[str, object](), start
        opener = re.compile(f"{WS}(?P<tag>{grammar.argument})")
        while found := opener.match(self.tags, at):
            name, begin = found["name"], found.end()
            end = self.values.end(found.start("tag"), begin, len(self.tags))
            if name in arguments or end is None:
                problem = "appears twice" if name in arguments else "is not closed"
                raise MalformedError(f"the argument {name[:80]} {problem}")
            self.values.check(name, begin, end, None)
            arguments[name] = typed(self._text(begin, end), name, tool)
            at = end + len(grammar.closer)
        closed = re.compile(f"{WS}{grammar.tail}{WS}{grammar.call.closer}").match(self.tags, at)
        if closed is None:
            problem = f"only arguments, each closed, may come before {grammar.call.closer}"
            raise MalformedError(problem)
        return arguments, closed.end()

    def _text(self, start: int, end: int) -> str:
        text = self.sampled.text[start:end]
        if not self.grammar.has_cdata or not text.startswith(_CDATA):
            return text
        inner, _, behind = text.removeprefix(_CDATA).partition("]]>")
        if behind or not text.endswith("]]>"):
            raise MalformedError("CDATA must end where its value does")
        return inner


@dataclass(frozen=True, slots=True)
class HeadedJson(ToolCallParser):
    """Reads calls of a head with the name, perhaps an id, and then one JSON object."""

    call: Delimiters
    head: str
    """What stands between opener and JSON, with the groups `name` and perhaps `id`."""
    tokens: tuple[str, ...] = ()
    """Delimiters in the head."""

    def parse(
        self, sampled: SampledText, *, tools: Sequence[ToolSpec], reasoning: Reasoning
    ) -> tuple[ToolCall, ...]:
        tags = sampled.without_spelled(*self.tokens).text
        head = re.compile(self.head)

        def read(opener: Mark) -> Found:
            found = head.match(tags, opener.end)
            if found is None:
                refusal = Refusal(CallStatus.MALFORMED, "the name of a tool must begin it")
                return refused(sampled, opener.end, self.call, refusal)
            return self._read(sampled, opener, found, tools)

        return calls_between(sampled, self.call, read, reasoning=reasoning)

    def _read(
        self, sampled: SampledText, opener: Mark, head: re.Match[str], tools: Sequence[ToolSpec]
    ) -> Found:
        name = head["name"]
        try:
            found = read_json(sampled.text, head.end())
        except ValueError as error:
            return refused(
                sampled, opener.end, self.call, Refusal(status_of(error), str(error), name)
            )
        if sampled.find(self.call.closer, found.end) != found.end:
            problem = "there is more text behind its JSON object"
            refusal = Refusal(CallStatus.INVALID_JSON, problem, name, known_to=found.end)
            return refused(sampled, opener.end, self.call, refusal)
        raw = sampled.text[opener.end : found.end]
        call = call_of_arguments(name, found.value, key="arguments", tools=tools, raw=raw)
        return Found(
            (replace(call, id=head.groupdict().get("id") or ""),),
            found.end + len(self.call.closer),
        )


SEED = ElementParser(
    ElementGrammar(
        Delimiters("<seed:tool_call>", "</seed:tool_call>"),
        head=WS + r"<function=([^<>\n]+)>",
        argument=r"<parameter=(?P<name>[^<>\n]+)>",
        closer="</parameter>",
        tail="</function>",
    )
)
MINICPM = ElementParser(
    ElementGrammar(
        Delimiters('<function name="', "</function>"),
        head=r'([^"<>\n]+)">',
        argument=r'<param name="(?P<name>[^"<>\n]+)">',
        closer="</param>",
        has_cdata=True,
    )
)
HY3 = ElementParser(
    ElementGrammar(
        Delimiters("<tool_call:opensource>", "</tool_call:opensource>"),
        head=r"([^\s<>]+)<tool_sep:opensource>",
        argument=rf"<arg_key:opensource>(?P<name>[^<>\n]+)</arg_key:opensource>{WS}"
        "<arg_value:opensource>",
        closer="</arg_value:opensource>",
        inner=(
            *("<tool_sep:opensource>", "<arg_key:opensource>", "</arg_key:opensource>"),
            "<arg_value:opensource>",
        ),
    )
)
FUNCTIONARY = HeadedJson(Delimiters("<function=", "</function>"), r"(?P<name>[^<>\n]+)>")
SOLAR = HeadedJson(
    Delimiters("<|tool_call:begin|>", "<|tool_call:end|>"),
    r"(?P<id>[^\s<|]*)<\|tool_call:name\|>(?P<name>[^\s<|]+)<\|tool_call:args\|>",
    ("<|tool_call:name|>", "<|tool_call:args|>"),
)
DEEPSEEK_V4 = InvokeParser(
    InvokeGrammar(
        Delimiters("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>"), "｜DSML｜", says_string=True
    )
)
MUSE = InvokeParser(
    InvokeGrammar(
        Delimiters("<atem:function_calls>", "</atem:function_calls>"), "atem:", says_string=False
    )
)
