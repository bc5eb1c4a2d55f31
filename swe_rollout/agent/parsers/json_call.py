"""Grammars of JSON calls between an opener and a closer, and checks of calls that are JSON.

    <tool_call>{"name": "NAME", "arguments": {…}}</tool_call>
    <tool_calls>[{"name": "NAME", "arguments": {…}}]</tool_calls>
    <function=NAME>{…}</function>

Each family is a row at the end. The JSON decoder finds the end of the value, so a closer in one of
its strings does not end the call. Some families have no closer: the turn's end closes the call.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from swe_rollout.agent.parsers.base import (
    Delimiters,
    Found,
    Mark,
    Reasoning,
    Refusal,
    SampledText,
    ToolCallParser,
    checked,
    refused,
    text_start,
)
from swe_rollout.agent.parsers.exact_calls import calls_between
from swe_rollout.agent.parsers.strict_json import JsonEndsError, read_json, skip_space
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.types.turn import CallStatus, ToolCall


def call_of_object(
    value: object,
    *,
    arguments_key: str,
    tools: Sequence[ToolSpec],
    raw: str,
    name_key: str = "name",
    id_key: str | None = None,
) -> ToolCall:
    """Read a call from an object with a name, arguments and, in some grammars, an id."""
    match value:
        case dict() if (name := value.get(name_key)) and isinstance(name, str):
            rest = {key: each for key, each in value.items() if key != name_key}
            call_id = rest.pop(id_key, "") if id_key else ""
            arguments = rest.pop(arguments_key, None)
            if not isinstance(call_id, str) or (rest and not isinstance(arguments, str)):
                problem = f"it may have no keys but {name_key} and {arguments_key}"
                return Refusal(CallStatus.MALFORMED, problem, name).call(raw)
            return replace(
                call_of_arguments(name, arguments, key=arguments_key, tools=tools, raw=raw),
                id=call_id,
            )
        case dict():
            problem = f'"{name_key}" must be the name of a tool'
            return Refusal(CallStatus.MISSING_NAME, problem).call(raw)
        case _:
            problem = f"it must be a JSON object with {name_key} and {arguments_key}"
            return Refusal(CallStatus.MALFORMED, problem).call(raw)


def call_of_arguments(
    name: str, arguments: object, *, key: str, tools: Sequence[ToolSpec], raw: str
) -> ToolCall:
    """Read a call of `name`; missing arguments, or arguments in a JSON string, are malformed."""
    if isinstance(arguments, dict):
        return checked(name, arguments, tools=tools, raw=raw)
    problem = f'the call of {name[:80]} was not run: "{key}" must be a JSON object'
    return ToolCall(CallStatus.BAD_ARGUMENTS, raw, name, problem=problem)


def status_of(error: ValueError) -> CallStatus:
    """Return the status of invalid JSON: truncated or malformed."""
    return CallStatus.UNCLOSED if isinstance(error, JsonEndsError) else CallStatus.INVALID_JSON


def call_of_text(name: str, text: str, *, tools: Sequence[ToolSpec], raw: str) -> ToolCall:
    """Read a call of `name` whose arguments are the JSON object `text`."""
    try:
        value = read_json(text).whole
    except ValueError as error:
        return Refusal(CallStatus.INVALID_JSON, str(error), name).call(raw)
    return call_of_arguments(name, value, key="arguments", tools=tools, raw=raw)


class Shape(Enum):
    """The content between the delimiters."""

    LIST = auto()
    OBJECT = auto()
    LINES = auto()
    """Objects, each on its own lines."""
    ONE = auto()
    """One object directly followed by the closer; white space around it belongs to the call."""


@dataclass(frozen=True, slots=True)
class JsonGrammar(ToolCallParser):
    """Reads the calls of one family; a call that may be part of a broken one does not run."""

    opener: str
    """The opener of a call; empty if the whole turn is a JSON list of calls."""
    closer: str = ""
    """The closer of a call; empty if the end of the turn closes it."""
    shape: Shape = Shape.LIST
    lead: str = ""
    """A second token that must directly follow the opener."""
    head: str = ""
    """Pattern of the text before the arguments, with the group `name` and optionally `id`; empty if
    the JSON names the tool."""
    tokens: tuple[str, ...] = ()
    """Delimiters in the head."""
    is_word: bool = False
    """Whether the opener is an ordinary word, which only counts directly before a list."""
    name_key: str = "name"
    arguments_key: str = "arguments"
    id_key: str | None = None
    is_keyed: bool = False
    """Whether a call is an object with one key, the tool's name, and the arguments as its value."""
    cut: CallStatus = CallStatus.UNCLOSED
    """The status of a call that has a closer but incomplete JSON."""

    def parse(
        self, sampled: SampledText, *, tools: Sequence[ToolSpec], reasoning: Reasoning
    ) -> tuple[ToolCall, ...]:
        tags = sampled.without_spelled(*self.tokens).text
        start = 0 if self.opener else skip_space(sampled.text, text_start(sampled, reasoning))

        def begins(at: int) -> Mark | None:
            is_list = at <= start and sampled.text.startswith("[", start)
            return Mark(start, "") if is_list else None

        return calls_between(
            sampled,
            Delimiters(self.opener, self.closer),
            lambda opener: _Call(sampled, tags, self, tools).read(opener),
            begins=None if self.opener else begins,
            reasoning=reasoning,
        )

    def call(
        self, value: object, head: re.Match[str], raw: str, tools: Sequence[ToolSpec]
    ) -> ToolCall:
        """Return the call in a JSON value, which follows a head if the family has one."""
        if self.head:
            found = call_of_arguments(
                head["name"], value, key=self.arguments_key, tools=tools, raw=raw
            )
            return replace(found, id=head.groupdict().get("id") or "")
        if self.is_keyed and isinstance(value, dict):
            if len(value) != 1:
                problem = "each call must be an object with one key, the tool's name"
                return Refusal(CallStatus.MALFORMED, problem).call(raw)
            [(name, arguments)] = value.items()
            value = {self.name_key: name, self.arguments_key: arguments}
        return call_of_object(
            value,
            arguments_key=self.arguments_key,
            tools=tools,
            raw=raw,
            name_key=self.name_key,
            id_key=self.id_key,
        )


@dataclass(frozen=True, slots=True)
class _Call:
    """Reads the attempts after one opener."""

    sampled: SampledText
    tags: str
    """The turn with merely spelled delimiters blanked."""
    grammar: JsonGrammar
    tools: Sequence[ToolSpec]

    def read(self, opener: Mark) -> Found:
        grammar, start = self.grammar, opener.end + len(self.grammar.lead)
        if grammar.is_word and not self.sampled.text.startswith("[", start):
            return Found((), start)
        if grammar.lead and self.sampled.find(grammar.lead, opener.end) != opener.end:
            problem = f"behind {grammar.opener} there must be {grammar.lead}"
            return self._refused(opener.end, Refusal(CallStatus.MALFORMED, problem))
        head = re.compile(grammar.head).match(self.tags, start)
        if head is None:
            refusal = Refusal(CallStatus.MALFORMED, "the name of a tool must begin it")
            return self._refused(start, refusal)
        return self._behind_head(start, head)

    def _behind_head(self, start: int, head: re.Match[str]) -> Found:
        grammar, is_one = self.grammar, self.grammar.shape is Shape.ONE
        name = head.groupdict().get("name", "")
        try:
            values, end = self._values(head.end())
        except ValueError as error:
            status = grammar.cut if isinstance(error, JsonEndsError) else CallStatus.INVALID_JSON
            return self._refused(start, Refusal(status, str(error), name))
        behind = self._closed(end)
        if behind is None:
            problem = f"there is more text behind its JSON{' object' if is_one else ''}"
            refusal = Refusal(CallStatus.INVALID_JSON, problem, name, known_to=end)
            return self._refused(start, refusal)
        if not values:
            problem = f"behind {grammar.opener} there must be a JSON list of calls"
            return self._refused(start, Refusal(CallStatus.MALFORMED, problem, known_to=end))
        raw = self.sampled.text[start:end] if is_one else self.sampled.text[start:end].strip()
        return Found(tuple(grammar.call(each, head, raw, self.tools) for each in values), behind)

    def _values(self, start: int) -> tuple[Sequence[object], int]:
        text = self.sampled.text
        found = read_json(text, start)
        values = [found.value]
        if self.grammar.shape is Shape.LIST:
            return (found.value if isinstance(found.value, list) else ()), found.end
        while self.grammar.shape is Shape.LINES and self._is_line(found.end):
            found = read_json(text, found.end)
            values.append(found.value)
        return values, found.end

    def _is_line(self, at: int) -> bool:
        text = self.sampled.text
        return text.startswith("{", at) and "\n" in text[text.rfind("}", 0, at) : at]

    def _closed(self, end: int) -> int | None:
        """Return the offset after the closer at `end`, or None if there is no closer."""
        text, closer, opener = self.sampled.text, self.grammar.closer, self.grammar.opener
        if closer and self.sampled.find(closer, end) == end:
            return end + len(closer)
        if end == len(text) and self.grammar.shape is not Shape.ONE:
            return end if not closer or self.sampled.ended_by == closer else None
        return end if not closer and opener and self.sampled.find(opener, end) == end else None

    def _refused(self, start: int, refusal: Refusal) -> Found:
        grammar, text = self.grammar, self.sampled.text
        if grammar.closer:
            call = Delimiters(grammar.opener, grammar.closer)
            return refused(self.sampled, start, call, refusal)
        return replace(refusal, name="").found(text[start:], len(text))


HERMES = JsonGrammar("<tool_call>", "</tool_call>", shape=Shape.ONE, cut=CallStatus.INVALID_JSON)
HUNYUAN = JsonGrammar("<tool_calls>", "</tool_calls>", id_key="id")
MINIMAX_M1 = JsonGrammar("<tool_calls>", "</tool_calls>", shape=Shape.LINES)
NEMOTRON = JsonGrammar("<TOOLCALL>", "</TOOLCALL>")
GRANITE = JsonGrammar("<|tool_call|>")
PHI4 = JsonGrammar("<|tool_call|>", "<|/tool_call|>")
GIGACHAT = JsonGrammar("<|function_call|>", shape=Shape.OBJECT)
GRANITE_20B = JsonGrammar("<function_call>", shape=Shape.OBJECT)
INTERNLM = JsonGrammar(
    "<|action_start|>",
    "<|action_end|>",
    shape=Shape.OBJECT,
    lead="<|plugin|>",
    arguments_key="parameters",
)
APERTUS = JsonGrammar("<|tools_prefix|>", "<|tools_suffix|>", is_keyed=True)
FUNCTOOLS = JsonGrammar("functools", is_word=True)
COHERE = JsonGrammar(
    "<|START_ACTION|>",
    "<|END_ACTION|>",
    name_key="tool_name",
    arguments_key="parameters",
    id_key="tool_call_id",
)
COMMAND_R = JsonGrammar(
    "Action: ```json\n", "```", name_key="tool_name", arguments_key="parameters"
)
XLAM = JsonGrammar("")
FUNCTIONARY = JsonGrammar("<function=", "</function>", shape=Shape.ONE, head=r"(?P<name>[^<>\n]+)>")
SOLAR = JsonGrammar(
    "<|tool_call:begin|>",
    "<|tool_call:end|>",
    shape=Shape.ONE,
    head=r"(?P<id>[^\s<|]*)<\|tool_call:name\|>(?P<name>[^\s<|]+)<\|tool_call:args\|>",
    tokens=("<|tool_call:name|>", "<|tool_call:args|>"),
)
