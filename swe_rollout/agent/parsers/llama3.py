"""The grammar of Llama 3: JSON objects with `name` and `parameters`, separated by semicolons.

They follow `<|python_tag|>`, in Llama 4 `<|python_end|>` behind words, or they are the whole turn,
which then starts with a brace.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from swe_rollout.agent.parsers.base import (
    Found,
    Mark,
    Reasoning,
    SampledText,
    ToolCallParser,
    attempts,
    not_run,
    text_start,
)
from swe_rollout.agent.parsers.json_call import call_of_object, status_of
from swe_rollout.agent.parsers.strict_json import read_json, skip_space
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.types.turn import CallStatus, ToolCall

_TAGS = ("<|python_tag|>", "<|python_end|>")


class Llama3Parser(ToolCallParser):
    """Reads calls that are the end of a turn, or all of it."""

    def parse(
        self, sampled: SampledText, *, tools: Sequence[ToolSpec], reasoning: Reasoning
    ) -> tuple[ToolCall, ...]:
        brace = skip_space(sampled.text, text_start(sampled, reasoning))

        def begins(at: int) -> Mark | None:
            if at <= brace and sampled.text.startswith("{", brace):
                return Mark(brace, "")
            return sampled.first(_TAGS, at)

        def read(opener: Mark) -> Found:
            return Found(tuple(_calls(sampled, opener.end, tools)), len(sampled.text))

        return attempts(sampled, begins, read, reasoning=reasoning)


def _calls(sampled: SampledText, start: int, tools: Sequence[ToolSpec]) -> Iterator[ToolCall]:
    text, at = sampled.text, start
    while True:
        try:
            found = read_json(text, at)
        except ValueError as error:
            yield _rest(sampled, at, status_of(error), str(error))
            return
        if found.end < len(text) and text[found.end] != ";":
            problem = "there is more text behind its JSON object"
            yield _rest(sampled, at, CallStatus.INVALID_JSON, problem)
            return
        raw = text[at : found.end]
        call = call_of_object(found.value, arguments_key="parameters", tools=tools, raw=raw)
        yield replace(call, span=sampled.span(at, found.end))
        if found.end == len(text):
            return
        at = found.end + 1


def _rest(sampled: SampledText, start: int, status: CallStatus, problem: str) -> ToolCall:
    raw = sampled.text[start:]
    span = sampled.span(start, len(sampled.text)) if raw else None
    return ToolCall(status, raw, problem=not_run(problem), span=span)
