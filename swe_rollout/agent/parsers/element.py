"""Grammars that write a call as one element with an element per argument; values are plain text.

    <tool_call>
    <function=NAME>
    <parameter=KEY>
    VALUE
    </parameter>
    </function>
    </tool_call>

Each family is a row at the end. `tags` finds the end of a value; its type comes from the schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
from swe_rollout.agent.parsers.exact_calls import LeftOvers, calls_of
from swe_rollout.agent.parsers.made_up import refuse_made_up
from swe_rollout.agent.parsers.tags import WS, Offsets, Values, ValueTags, parameters_of
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.types.turn import CallStatus, ToolCall

_CDATA = "<![CDATA["


@dataclass(frozen=True, slots=True)
class ArgumentTags:
    """The tags around each argument of a call."""

    opener: str
    """A pattern whose group `name` is the argument's name."""
    closer: str
    noun: str = "argument"
    unclosed: str = "is not closed"
    call_opener: str = ""
    """Pattern of a call's start, if a value may open parameters of other tools without closing
    them; else empty."""

    def read(
        self,
        turn: TaggedTurn,
        start: int,
        *,
        limit: int,
        tool: ToolSpec | None,
        value: Callable[[re.Match[str], str], object],
    ) -> tuple[dict[str, object], int]:
        """Read the arguments from `start` on; return them and the offset after the last one.

        `value` converts the text after an opening tag to its type. Raises MalformedError.
        """
        arguments, at = dict[str, object](), start
        opener = re.compile(f"{WS}(?P<tag>{self.opener})")
        while found := opener.match(turn.tags.text, at):
            name, begin = found["name"], found.end()
            end = turn.values.end(found.start("tag"), begin, limit)
            if name in arguments or end is None:
                problem = "appears twice" if name in arguments else self.unclosed
                raise MalformedError(f"the {self.noun} {name[:80]} {problem}")
            names = None
            if self.call_opener:
                call = turn.tags.find(self.call_opener, begin)
                names = None if call is not None and call < end else parameters_of(tool)
            turn.values.check(name, begin, end, names)
            arguments[name] = value(found, turn.sampled.text[begin:end])
            at = end + len(self.closer)
        return arguments, at


@dataclass(frozen=True, slots=True)
class TaggedTurn:
    """A sampled turn in a tag grammar."""

    sampled: SampledText
    tags: SampledText
    """The turn with merely spelled tags blanked; all searches use it."""
    values: Values
    ends: Offsets
    """The ends of calls that no value can extend beyond, if the grammar has them."""
    tools: Sequence[ToolSpec]


@dataclass(frozen=True, slots=True)
class ElementGrammar(ToolCallParser):
    """Reads the calls of one family. Tags are patterns, except for the delimiters of a call."""

    call: Delimiters
    head: str
    """Pattern, with the tool's name as its group, of the text after the opener."""
    arguments: ArgumentTags
    only: str
    """The rule for the content of a call, quoted in the error if a call breaks it."""
    tail: str = ""
    """The text before the call's closer."""
    tokens: tuple[str, ...] = ()
    """Further delimiters that may be tokens."""
    closers: tuple[str, ...] = ()
    """Further closing tags that belong to no value."""
    nameless: str = "it must begin with the name of a tool"
    behind_name: tuple[str, ...] = ()
    """What must follow a name: other text before it is malformed; if empty, a missing name."""
    value_opener: str = ""
    """The opening tag of an argument inside a value; by default that of any argument."""
    ends_at_first: bool = False
    """Whether a call ends at the first call end after its start, whatever its values quote."""
    is_framed: bool = False
    """Whether one newline on either side of a value is not part of it."""
    has_cdata: bool = False
    """Whether a value may be wrapped in CDATA."""
    is_text: bool = False
    """Whether results come as text, which a policy may make up."""

    def parse(
        self, sampled: SampledText, *, tools: Sequence[ToolSpec], reasoning: Reasoning
    ) -> tuple[ToolCall, ...]:
        end, inner = f"{self.tail}{WS}{self.call.closer}", self.arguments
        delimiters = (self.call.opener, self.call.closer, inner.closer, self.tail)
        tags = sampled.without_spelled(*delimiters, *self.tokens)
        following = f"{inner.opener.replace('?P<name>', '?:')}|{end}"
        values = ValueTags(self.value_opener or inner.opener, inner.closer, following, end)
        ends = Offsets.of(end, tags.text) if self.ends_at_first else Offsets(())
        turn = TaggedTurn(sampled, tags, values.find(tags.text), ends, tools)
        found = pieces(
            sampled,
            lambda at: sampled.first((self.call.opener,), at),
            lambda opener: self._read(turn, opener),
            reasoning=reasoning,
        )
        closers = (inner.closer, self.call.closer, *self.closers)
        kept = LeftOvers(sampled, turn.values, closers).refuse(found)
        return refuse_made_up(sampled, kept, reasoning) if self.is_text else calls_of(kept)

    def _read(self, turn: TaggedTurn, opener: Mark) -> Found:
        start = opener.end
        head = re.compile(self.head).match(turn.tags.text, start)
        name = head[1] if head else ""
        try:
            behind = head.end() if head and name else None
            arguments, end = self._arguments(turn, start, behind, tool_named(name, turn.tools))
        except MalformedError as error:
            refusal = Refusal(error.status, str(error), name)
            return refused(turn.sampled, start, self.call, refusal)
        raw = turn.sampled.text[start : end - len(self.call.closer)]
        return Found((checked(name, arguments, tools=turn.tools, raw=raw),), end)

    def _arguments(
        self, turn: TaggedTurn, start: int, behind: int | None, tool: ToolSpec | None
    ) -> tuple[dict[str, object], int]:
        """Read the arguments after the head; return them and the end of the call."""
        limit = turn.ends.next(start) if self.ends_at_first else len(turn.sampled.text)
        if limit is None:
            raise MalformedError(f"{self.tail} and {self.call.closer} must end it")
        if behind is None:
            raise MalformedError(self.nameless, self._nameless(turn, start))
        arguments, at = self.arguments.read(
            turn,
            behind,
            limit=limit,
            tool=tool,
            value=lambda tag, text: typed(self._plain(text), tag["name"], tool),
        )
        closed = re.compile(f"{WS}{self.tail}{WS}{self.call.closer}").match(turn.tags.text, at)
        if closed is None:
            raise MalformedError(self.only)
        return arguments, closed.end()

    def _nameless(self, turn: TaggedTurn, start: int) -> CallStatus:
        first = turn.tags.first(self.behind_name, start)
        has_words = first and turn.sampled.text[start : first.start].strip()
        return CallStatus.MALFORMED if has_words else CallStatus.MISSING_NAME

    def _plain(self, text: str) -> str:
        if self.is_framed:
            return text.removeprefix("\n").removesuffix("\n")
        if not self.has_cdata or not text.startswith(_CDATA):
            return text
        inner, _, behind = text.removeprefix(_CDATA).partition("]]>")
        if behind or not text.endswith("]]>"):
            raise MalformedError("CDATA must end where its value does")
        return inner


def _parameter_tags(*, unclosed: str = "is not closed", call_opener: str = "") -> ArgumentTags:
    opener = r"<parameter=(?P<name>[^<>\n]+)>"
    noun = "parameter" if call_opener else "argument"
    return ArgumentTags(opener, "</parameter>", noun, unclosed, call_opener)


def _bare(keyed: ArgumentTags, value: str) -> str:
    """Return the pattern of opening tags inside a value, which may quote one without its key."""
    return f"{keyed.opener}|(?P<bare>{value})"


_TOOL_CALL = Delimiters("<tool_call>", "</tool_call>")
_ARG_TAGS = ("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
_HY3_TAGS = tuple(tag.replace(">", ":opensource>") for tag in _ARG_TAGS)


def _keyed(tags: Sequence[str], unclosed: str) -> ArgumentTags:
    key, key_end, value, value_end = tags
    opener = rf"{key}(?P<name>[^<>\n]+){key_end}{WS}{value}"
    return ArgumentTags(opener, value_end, unclosed=unclosed)


QWEN_XML = ElementGrammar(
    _TOOL_CALL,
    head=WS + r"<function=([^<>\n]*)>",
    arguments=_parameter_tags(unclosed="is not closed by </parameter>", call_opener="<tool_call>"),
    only="between <function=NAME> and </function> there may only be parameters, each closed by "
    "</parameter>",
    tail="</function>",
    closers=("</function>",),
    nameless="it must begin with <function=NAME>",
    # A tag that really belongs to a parameter is on a line of its own.
    value_opener=r"^<parameter=(?P<name>[^<>\n]+)>$|<parameter=[^<>\n]+>",
    ends_at_first=True,
    is_framed=True,
)
_GLM_ARGUMENTS = _keyed(_ARG_TAGS, unclosed="is not closed by </arg_value>")
_HY3_ARGUMENTS = _keyed(_HY3_TAGS, unclosed="is not closed")
GLM45 = GLM47 = ElementGrammar(
    _TOOL_CALL,
    # One newline after the name is framing; any other space would be part of the name.
    head=r"([^\s<>{}\0]+)\n?(?=<arg_key>|</?tool_call>|\Z)",
    arguments=_GLM_ARGUMENTS,
    value_opener=_bare(_GLM_ARGUMENTS, "<arg_value>"),
    only="there may only be keys and values behind the name",
    tokens=_ARG_TAGS,
    closers=("</arg_key>",),
    nameless="it must begin with the name of a tool, and nothing else",
    behind_name=("<arg_key>", "</tool_call>"),
)
SEED = ElementGrammar(
    Delimiters("<seed:tool_call>", "</seed:tool_call>"),
    head=WS + r"<function=([^<>\n]+)>",
    arguments=_parameter_tags(),
    only="only arguments, each closed, may come before </seed:tool_call>",
    tail="</function>",
)
FUNCTION_XML = ElementGrammar(
    Delimiters("<function=", "</function>"),
    head=r"([^<>\s]+)>",
    arguments=_parameter_tags(),
    only="only arguments, each closed, may come before </function>",
    is_text=True,
)
"""R2E's format: calls are part of a turn's text. Nothing is trimmed from a value."""
MINICPM = ElementGrammar(
    Delimiters('<function name="', "</function>"),
    head=r'([^"<>\n]+)">',
    arguments=ArgumentTags(r'<param name="(?P<name>[^"<>\n]+)">', "</param>"),
    only="only arguments, each closed, may come before </function>",
    has_cdata=True,
)
HY3 = ElementGrammar(
    Delimiters("<tool_call:opensource>", "</tool_call:opensource>"),
    head=r"([^\s<>]+)<tool_sep:opensource>",
    arguments=_HY3_ARGUMENTS,
    value_opener=_bare(_HY3_ARGUMENTS, "<arg_value:opensource>"),
    only="only arguments, each closed, may come before </tool_call:opensource>",
    tokens=("<tool_sep:opensource>", *_HY3_TAGS),
)
