"""The grammar of GLM: the tool's name, then keys and values in tags, typed by the tool's schema.

    <tool_call>NAME
    <arg_key>KEY</arg_key>
    <arg_value>VALUE</arg_value>
    </tool_call>

GLM-4.5 writes the newlines, GLM-4.7 leaves them out; between tags both are white space. A value is
everything between its tags; `tags` says where it ends.
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
from swe_rollout.agent.parsers.strict_json import skip_space
from swe_rollout.agent.parsers.tags import WS, Values, ValueTags
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.types.turn import CallStatus, ToolCall

_KEY, _KEY_END = "<arg_key>", "</arg_key>"
_VALUE, _VALUE_END = "<arg_value>", "</arg_value>"
_PAIR = rf"{_KEY}[^<>\n]+{_KEY_END}{WS}{_VALUE}"
_ARGUMENT = re.compile(rf"{WS}({_KEY}([^<>\n]+){_KEY_END}{WS}{_VALUE})")
_TAGS = ValueTags(
    opener=rf"(?P<name>{_PAIR})",
    closer=_VALUE_END,
    following=f"{_PAIR}|{CALL.closer}",
    call_end=CALL.closer,
)
_NO_NAME = re.compile(r"[\s<>{}]")


class GlmParser(ToolCallParser):
    """Reads calls of keys and values."""

    def parse(
        self, sampled: SampledText, *, tools: Sequence[ToolSpec], reasoning: Reasoning
    ) -> tuple[ToolCall, ...]:
        delimiters = (CALL.opener, CALL.closer, _KEY, _KEY_END, _VALUE, _VALUE_END)
        tags = sampled.without_spelled(*delimiters).text
        values = _TAGS.find(tags)
        turn = _Calls(sampled, tags, values, tools)
        found = pieces(
            sampled,
            lambda at: sampled.first((CALL.opener,), at),
            turn.read,
            reasoning=reasoning,
        )
        return LeftOvers(sampled, values, (_KEY_END, _VALUE_END, CALL.closer)).refuse(found)


@dataclass(frozen=True, slots=True)
class _Calls:
    """Reads the calls of one turn."""

    sampled: SampledText
    tags: str
    """The turn, without delimiters that are only spelled."""
    values: Values
    tools: Sequence[ToolSpec]

    def read(self, opener: Mark) -> Found:
        """Read the call behind an opener."""
        start = opener.end
        first = self.sampled.first((_KEY, CALL.closer, CALL.opener), start)
        # One newline behind the name is framing; any other space would be part of it.
        name = self.sampled.text[start : first.start if first else None].removesuffix("\n")
        known = "" if _NO_NAME.search(name) else name
        if first is None or first.token == CALL.opener:
            return self._refused(start, Refusal(CallStatus.UNCLOSED, name=known))
        if not known:
            status = CallStatus.MALFORMED if name.strip() else CallStatus.MISSING_NAME
            problem = "it must begin with the name of a tool, and nothing else"
            return self._refused(start, Refusal(status, problem))
        try:
            arguments, end = self._arguments(first.start, tool_named(name, self.tools))
        except MalformedError as error:
            return self._refused(start, Refusal(CallStatus.MALFORMED, str(error), name))
        raw = self.sampled.text[start:end]
        call = checked(name, arguments, tools=self.tools, raw=raw)
        return Found((call,), end + len(CALL.closer))

    def _refused(self, start: int, refusal: Refusal) -> Found:
        return refused(self.sampled, start, CALL, refusal)

    def _arguments(self, start: int, tool: ToolSpec | None) -> tuple[dict[str, object], int]:
        """Read keys with values; also return the offset of the call's closer."""
        arguments: dict[str, object] = {}
        at = start
        while found := _ARGUMENT.match(self.tags, at):
            key, begin = found[2], found.end()
            end = self.values.end(found.start(1), begin, len(self.tags))
            if key in arguments or end is None:
                problem = "appears twice" if key in arguments else f"is not closed by {_VALUE_END}"
                raise MalformedError(f"the argument {key[:80]} {problem}")
            self.values.check(key, begin, end, None)
            arguments[key] = typed(self.sampled.text[begin:end], key, tool)
            at = end + len(_VALUE_END)
        at = skip_space(self.tags, at)
        if self.sampled.find(CALL.closer, at) != at:
            raise MalformedError("there may only be keys and values behind the name")
        return arguments, at


GLM = GlmParser()
