"""The grammar of Llama 3: JSON objects with `name` and `parameters`, parted by semicolons.

They follow `<|python_tag|>`, or they are the whole answer, which then begins with a brace.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from swe_rollout.agent.parsers.base import ToolCallParser, answer_start, told
from swe_rollout.agent.parsers.json_call import call_of_object
from swe_rollout.agent.parsers.strict_json import read_json, skip_space
from swe_rollout.trajectory import CallStatus, ToolCall

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from swe_rollout.agent.parsers.base import Reasoning, SampledText
    from swe_rollout.agent.tools.base import ToolSpec

_TAG = "<|python_tag|>"


class Llama3Parser(ToolCallParser):
    """Reads calls that are the end of an answer, or all of it."""

    def parse(
        self, sampled: SampledText, *, tools: Sequence[ToolSpec], reasoning: Reasoning
    ) -> tuple[ToolCall, ...]:
        """Every attempt, in order."""
        start = answer_start(sampled, reasoning)
        tag = sampled.find(_TAG, start)
        if tag is not None:
            return tuple(_calls(sampled, tag + len(_TAG), tools))
        first = skip_space(sampled.text, start)
        if sampled.text[first : first + 1] != "{":
            return ()
        return tuple(_calls(sampled, first, tools))


def _calls(sampled: SampledText, start: int, tools: Sequence[ToolSpec]) -> Iterator[ToolCall]:
    text, at = sampled.text, start
    while True:
        try:
            found = read_json(text, at)
        except ValueError as error:
            yield _rest(sampled, at, str(error))
            return
        raw = text[at : found.end]
        call = call_of_object(found.value, arguments_key="parameters", tools=tools, raw=raw)
        if found.end < len(text) and text[found.end] != ";":
            yield _rest(sampled, at, "there is more text behind its JSON object")
            return
        yield replace(call, span=sampled.span(at, found.end))
        if found.end >= len(text):
            return
        at = found.end + 1


def _rest(sampled: SampledText, start: int, problem: str) -> ToolCall:
    raw = sampled.text[start:]
    span = sampled.span(start, len(sampled.text)) if raw else None
    return ToolCall(CallStatus.INVALID_JSON, raw, problem=told(problem), span=span)
