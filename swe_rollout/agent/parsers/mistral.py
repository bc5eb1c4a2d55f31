"""The two grammars of Mistral behind `[TOOL_CALLS]`.

Up to Small 3.1 one JSON list: `[TOOL_CALLS] [{"name": …, "arguments": {…}, "id": "…"}]`. Later one
`[TOOL_CALLS]NAME[ARGS]{…}` for each call, perhaps with `[CALL_ID]ID` before `[ARGS]`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from swe_rollout.agent.parsers.base import Attempt, Delimiters, ToolCallParser, attempts, told
from swe_rollout.agent.parsers.json_call import call_of_arguments, call_of_object
from swe_rollout.agent.parsers.strict_json import read_json
from swe_rollout.trajectory import CallStatus, ToolCall

if TYPE_CHECKING:
    from collections.abc import Sequence

    from swe_rollout.agent.parsers.base import Reasoning, SampledText
    from swe_rollout.agent.tools.base import ToolSpec

_CALLS = Delimiters("[TOOL_CALLS]", "")
_ARGUMENTS = "[ARGS]"
_ID = "[CALL_ID]"


class MistralListParser(ToolCallParser):
    """Reads one JSON list of calls, the end of an answer."""

    def parse(
        self, sampled: SampledText, *, tools: Sequence[ToolSpec], reasoning: Reasoning
    ) -> tuple[ToolCall, ...]:
        """Every attempt outside the reasoning, in order."""
        calls: list[ToolCall] = []

        def read(start: int) -> Attempt:
            calls.extend(_list(sampled, start, tools))
            return Attempt(calls[-1], len(sampled.text))

        attempts(sampled, _CALLS, read, reasoning=reasoning)
        return tuple(calls)


class MistralArgsParser(ToolCallParser):
    """Reads calls that each begin with their name."""

    def parse(
        self, sampled: SampledText, *, tools: Sequence[ToolSpec], reasoning: Reasoning
    ) -> tuple[ToolCall, ...]:
        """Every attempt outside the reasoning, in order."""
        return attempts(
            sampled, _CALLS, lambda start: _named(sampled, start, tools), reasoning=reasoning
        )


def _list(sampled: SampledText, start: int, tools: Sequence[ToolSpec]) -> list[ToolCall]:
    raw = sampled.text[start:].strip()
    span = sampled.span(start, len(sampled.text)) if raw else None
    try:
        value = read_json(sampled.text, start).whole
    except ValueError as error:
        # A list that stops in the middle is one that was never closed.
        unclosed = not raw.endswith("]")
        status = CallStatus.UNCLOSED if unclosed else CallStatus.INVALID_JSON
        return [ToolCall(status, raw, problem=told(str(error)), span=span)]
    if not isinstance(value, list) or not value:
        problem = told("behind [TOOL_CALLS] there must be a JSON list of calls")
        return [ToolCall(CallStatus.MALFORMED, raw, problem=problem, span=span)]
    return [
        replace(
            call_of_object(each, arguments_key="arguments", tools=tools, raw=raw, id_key="id"),
            span=span,
        )
        for each in value
    ]


def _named(sampled: SampledText, start: int, tools: Sequence[ToolSpec]) -> Attempt:
    text = sampled.text
    following = sampled.find(_CALLS.opener, start)
    limit = len(text) if following is None else following
    mark = sampled.first((_ARGUMENTS,), start)
    if mark is None or mark.start >= limit:
        problem = told(f"NAME{_ARGUMENTS} and a JSON object must follow [TOOL_CALLS]")
        return Attempt(ToolCall(CallStatus.UNCLOSED, text[start:limit], problem=problem), limit)
    head = text[start : mark.start]
    name, _, call_id = (part.strip() for part in head.partition(_ID))
    begin = mark.start + len(_ARGUMENTS)
    try:
        found = read_json(text, begin)
    except ValueError as error:
        raw = text[start:limit]
        call = ToolCall(CallStatus.INVALID_JSON, raw, name, problem=told(str(error)), id=call_id)
        return Attempt(call, limit)
    behind = sampled.find(_CALLS.opener, found.end)
    end = len(text) if behind is None else behind
    raw = text[start:end]
    if not name:
        problem = told("it does not name a tool")
        return Attempt(ToolCall(CallStatus.MISSING_NAME, raw, problem=problem), end)
    if found.end != end:
        problem = told("there is more text behind its JSON object")
        call = ToolCall(CallStatus.INVALID_JSON, raw, name, problem=problem, id=call_id)
        return Attempt(call, end)
    call = call_of_arguments(name, found.value, key="arguments", tools=tools, raw=raw)
    return Attempt(replace(call, id=call_id), end)
