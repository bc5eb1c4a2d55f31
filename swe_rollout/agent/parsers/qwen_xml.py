"""The grammar of Qwen3-Coder: calls as tags, values as plain text, typed by the tool's schema.

    <tool_call>
    <function=NAME>
    <parameter=KEY>
    VALUE
    </parameter>
    </function>
    </tool_call>

Exactly one newline on either side of a value is framing, the rest is the value. `tags` says where a
value ends. A call ends at the first `</function>` with `</tool_call>` behind it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from swe_rollout.agent.parsers.base import (
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
from swe_rollout.agent.parsers.exact_calls import LeftOvers
from swe_rollout.agent.parsers.hermes import CALL
from swe_rollout.agent.parsers.tags import WS, Offsets, Values, ValueTags, parameters_of
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.types.turn import CallStatus, ToolCall

_FUNCTION = re.compile(rf"{WS}<function=([^<>\n]*)>")
_PARAMETER = re.compile(rf"{WS}(<parameter=([^<>\n]+)>)")
_CALL_END = rf"</function>{WS}{CALL.closer}"
_END = re.compile(WS + _CALL_END)
_TAGS = ValueTags(
    # One that is really a parameter's stands in a line of its own.
    opener=r"^<parameter=(?P<name>[^<>\n]+)>$|<parameter=[^<>\n]+>",
    closer="</parameter>",
    following=rf"<parameter=[^<>\n]+>|{_CALL_END}",
    call_end=_CALL_END,
)
_CLOSERS = ("</parameter>", "</function>", CALL.closer)


class QwenXmlParser(ToolCallParser):
    """Reads calls in tags."""

    def parse(
        self, sampled: SampledText, *, tools: Sequence[ToolSpec], reasoning: Reasoning
    ) -> tuple[ToolCall, ...]:
        tags = sampled.without_spelled(CALL.opener, CALL.closer).text
        values = _TAGS.find(tags)
        turn = _Calls(sampled, tags, values, Offsets.of(_CALL_END, tags), tools)
        found = pieces(
            sampled,
            lambda at: sampled.first((CALL.opener,), at),
            turn.read,
            reasoning=reasoning,
        )
        return LeftOvers(sampled, values, _CLOSERS).refuse(found)


@dataclass(frozen=True, slots=True)
class _Calls:
    """Reads the calls of one turn."""

    sampled: SampledText
    tags: str
    """The turn, without delimiters that are only spelled."""
    values: Values
    ends: Offsets
    tools: Sequence[ToolSpec]

    def read(self, opener: Mark) -> Found:
        """Read the call behind an opener."""
        start = opener.end
        limit = self.ends.next(start)
        found = _FUNCTION.match(self.tags, start)
        name = found[1] if found else ""
        if limit is None:
            problem = "</function> and </tool_call> must end it"
            return self._refused(start, Refusal(CallStatus.MALFORMED, problem, name))
        if found is None or not name:
            problem = "it must begin with <function=NAME>"
            return self._refused(start, Refusal(CallStatus.MISSING_NAME, problem))
        try:
            arguments, end = self._arguments(found.end(), limit, tool_named(name, self.tools))
        except MalformedError as error:
            return self._refused(start, Refusal(CallStatus.MALFORMED, str(error), name))
        raw = self.sampled.text[start : end - len(CALL.closer)]
        return Found((checked(name, arguments, tools=self.tools, raw=raw),), end)

    def _refused(self, start: int, refusal: Refusal) -> Found:
        return refused(self.sampled, start, CALL, refusal)

    def _arguments(
        self, start: int, limit: int, tool: ToolSpec | None
    ) -> tuple[dict[str, object], int]:
        """Read parameters; also return the offset behind the call."""
        arguments: dict[str, object] = {}
        at = start
        while found := _PARAMETER.match(self.tags, at):
            name = found[2]
            end = self.values.end(found.start(1), found.end(), limit)
            if name in arguments or end is None:
                problem = "appears twice" if name in arguments else "is not closed by </parameter>"
                raise MalformedError(f"the parameter {name[:80]} {problem}")
            call = self.sampled.find(CALL.opener, found.end())
            holds_call = call is not None and call < end
            names = None if holds_call else parameters_of(tool)
            self.values.check(name, found.end(), end, names)
            text = self.sampled.text[found.end() : end].removeprefix("\n").removesuffix("\n")
            arguments[name] = typed(text, name, tool)
            at = end + len("</parameter>")
        closed = _END.match(self.tags, at)
        if closed is None:
            raise MalformedError(
                "between <function=NAME> and </function> there may only be parameters, each closed "
                "by </parameter>"
            )
        return arguments, closed.end()


QWEN_XML = QwenXmlParser()
