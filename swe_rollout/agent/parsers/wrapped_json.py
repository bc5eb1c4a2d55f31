"""Grammars of JSON calls between an opener and a closer: a list of calls, or one call each.

    <tool_calls>[{"name": "NAME", "arguments": {…}}]</tool_calls>
    <|function_call|>{"name": "NAME", "arguments": {…}}

The JSON decoder says where the value ends, so a closer in one of its strings cuts nothing. Some
families have no closer: the end of the turn closes the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

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
    refused,
    text_start,
)
from swe_rollout.agent.parsers.exact_calls import calls_between
from swe_rollout.agent.parsers.json_call import call_of_object, status_of
from swe_rollout.agent.parsers.strict_json import read_json, skip_space
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.types.turn import CallStatus, ToolCall


class Shape(Enum):
    """What stands between the delimiters."""

    LIST = auto()
    OBJECT = auto()
    LINES = auto()
    """Objects, each on lines of its own."""


@dataclass(frozen=True, slots=True)
class JsonGrammar:
    """One family's delimiters and keys."""

    opener: str
    closer: str = ""
    """Empty: the end of the turn."""
    shape: Shape = Shape.LIST
    lead: str = ""
    """A second token that the opener needs directly behind it."""
    is_word: bool = False
    """Whether the opener is a word that text may hold: only a list directly behind it counts."""
    name_key: str = "name"
    arguments_key: str = "arguments"
    id_key: str | None = None
    is_keyed: bool = False
    """Whether a call is an object of one key, the name, whose value is the arguments."""

    @property
    def call(self) -> Delimiters:
        """The start and end of a call."""
        return Delimiters(self.opener, self.closer)


@dataclass(frozen=True, slots=True)
class _Reader:
    sampled: SampledText
    grammar: JsonGrammar
    tools: Sequence[ToolSpec]

    def read(self, opener: Mark) -> Found:
        grammar, start = self.grammar, opener.end + len(self.grammar.lead)
        if grammar.is_word and not self.sampled.text.startswith("[", start):
            return Found((), start)
        if grammar.lead and self.sampled.find(grammar.lead, opener.end) != opener.end:
            problem = f"behind {grammar.opener} there must be {grammar.lead}"
            return self._refused(opener.end, Refusal(CallStatus.MALFORMED, problem))
        try:
            values, end = self._values(start)
        except ValueError as error:
            return self._refused(start, Refusal(status_of(error), str(error)))
        behind = self._closed(end)
        if behind is None:
            problem = "there is more text behind its JSON"
            return self._refused(start, Refusal(CallStatus.INVALID_JSON, problem, known_to=end))
        if not values:
            wanted = "list of calls" if grammar.shape is Shape.LIST else "object"
            problem = f"behind {grammar.opener} there must be a JSON {wanted}"
            return self._refused(start, Refusal(CallStatus.MALFORMED, problem, known_to=end))
        raw = self.sampled.text[start:end].strip()
        return Found(tuple(self._call(value, raw) for value in values), behind)

    def _values(self, start: int) -> tuple[Sequence[object], int]:
        text = self.sampled.text
        found = read_json(text, start)
        match self.grammar.shape:
            case Shape.LIST:
                return (found.value if isinstance(found.value, list) else ()), found.end
            case Shape.OBJECT:
                return (found.value,), found.end
            case Shape.LINES:
                values = [found.value]
                while self._is_line(found.end):
                    found = read_json(text, found.end)
                    values.append(found.value)
                return values, found.end

    def _is_line(self, at: int) -> bool:
        text = self.sampled.text
        return text.startswith("{", at) and "\n" in text[text.rfind("}", 0, at) : at]

    def _closed(self, end: int) -> int | None:
        """Return the offset behind the closer that must come at `end`; none where it does not."""
        text, closer = self.sampled.text, self.grammar.closer
        if end == len(text) and (not closer or self.sampled.ended_by == closer):
            return end
        if closer and self.sampled.find(closer, end) == end:
            return end + len(closer)
        opener = self.grammar.opener
        return end if not closer and opener and self.sampled.find(opener, end) == end else None

    def _call(self, value: object, raw: str) -> ToolCall:
        grammar = self.grammar
        match value:
            case dict() if grammar.is_keyed:
                if len(value) != 1:
                    problem = not_run("each call must be an object with one key, the tool's name")
                    return ToolCall(CallStatus.MALFORMED, raw, problem=problem)
                [(name, arguments)] = value.items()
                value = {grammar.name_key: name, grammar.arguments_key: arguments}
        return call_of_object(
            value,
            arguments_key=grammar.arguments_key,
            tools=self.tools,
            raw=raw,
            name_key=grammar.name_key,
            id_key=grammar.id_key,
        )

    def _refused(self, start: int, refusal: Refusal) -> Found:
        grammar, text = self.grammar, self.sampled.text
        if grammar.closer:
            return refused(self.sampled, start, grammar.call, refusal)
        call = ToolCall(refusal.status, text[start:], problem=not_run(refusal.problem))
        return Found((call,), len(text))


class BareListParser(ToolCallParser):
    """Reads a turn that is nothing but a JSON list of calls."""

    def __init__(self, grammar: JsonGrammar) -> None:
        self._grammar = grammar

    def parse(
        self, sampled: SampledText, *, tools: Sequence[ToolSpec], reasoning: Reasoning
    ) -> tuple[ToolCall, ...]:
        start = skip_space(sampled.text, text_start(sampled, reasoning))

        def begins(at: int) -> Mark | None:
            is_list = at <= start and sampled.text.startswith("[", start)
            return Mark(start, "") if is_list else None

        reader = _Reader(sampled, self._grammar, tools)
        return attempts(sampled, begins, reader.read, reasoning=reasoning)


class WrappedParser(ToolCallParser):
    """Reads calls behind an opener; what may be only part of a broken call does not run."""

    def __init__(self, grammar: JsonGrammar) -> None:
        self._grammar = grammar

    def parse(
        self, sampled: SampledText, *, tools: Sequence[ToolSpec], reasoning: Reasoning
    ) -> tuple[ToolCall, ...]:
        reader = _Reader(sampled, self._grammar, tools)
        return calls_between(sampled, self._grammar.call, reader.read, reasoning=reasoning)


HUNYUAN = WrappedParser(JsonGrammar("<tool_calls>", "</tool_calls>", id_key="id"))
MINIMAX_M1 = WrappedParser(JsonGrammar("<tool_calls>", "</tool_calls>", shape=Shape.LINES))
NEMOTRON = WrappedParser(JsonGrammar("<TOOLCALL>", "</TOOLCALL>"))
GRANITE = WrappedParser(JsonGrammar("<|tool_call|>"))
PHI4 = WrappedParser(JsonGrammar("<|tool_call|>", "<|/tool_call|>"))
GIGACHAT = WrappedParser(JsonGrammar("<|function_call|>", shape=Shape.OBJECT))
GRANITE_20B = WrappedParser(JsonGrammar("<function_call>", shape=Shape.OBJECT))
INTERNLM = WrappedParser(
    JsonGrammar(
        "<|action_start|>",
        "<|action_end|>",
        shape=Shape.OBJECT,
        lead="<|plugin|>",
        arguments_key="parameters",
    )
)
APERTUS = WrappedParser(JsonGrammar("<|tools_prefix|>", "<|tools_suffix|>", is_keyed=True))
FUNCTOOLS = WrappedParser(JsonGrammar("functools", is_word=True))
COHERE = WrappedParser(
    JsonGrammar(
        "<|START_ACTION|>",
        "<|END_ACTION|>",
        name_key="tool_name",
        arguments_key="parameters",
        id_key="tool_call_id",
    )
)
COMMAND_R = WrappedParser(
    JsonGrammar("Action: ```json\n", "```", name_key="tool_name", arguments_key="parameters")
)
XLAM = BareListParser(JsonGrammar(""))
