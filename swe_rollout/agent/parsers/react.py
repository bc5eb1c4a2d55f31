"""The ReAct text format, for engines that give text alone: lines that name an action and its input.

    Thought: …
    Action: NAME
    Action Input: {…}

An answer without `Action:` is no call. The input is one JSON object.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from swe_rollout.agent.parsers.base import ToolCallParser, answer_start, told
from swe_rollout.agent.parsers.json_call import call_of_arguments
from swe_rollout.agent.parsers.strict_json import read_json
from swe_rollout.trajectory import CallStatus, ToolCall

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from swe_rollout.agent.parsers.base import Reasoning, SampledText
    from swe_rollout.agent.tools.base import ToolSpec

_ACTION = re.compile(r"^Action:[ \t]*([^\n]*)$", re.MULTILINE)
_INPUT = re.compile(r"\s*^Action Input:[ \t]*", re.MULTILINE)
_NEXT = re.compile(r"(?:Thought|Action|Observation|Final Answer):")


class ReactParser(ToolCallParser):
    """Reads actions."""

    def parse(
        self, sampled: SampledText, *, tools: Sequence[ToolSpec], reasoning: Reasoning
    ) -> tuple[ToolCall, ...]:
        """Every action, in order."""
        return tuple(_calls(sampled, answer_start(sampled, reasoning), tools))


def _calls(sampled: SampledText, start: int, tools: Sequence[ToolSpec]) -> Iterator[ToolCall]:
    at = start
    while found := _ACTION.search(sampled.text, at):
        following = _ACTION.search(sampled.text, found.end())
        limit = following.start() if following else len(sampled.text)
        call, at = _call(sampled.text, found, limit, tools)
        yield replace(call, span=sampled.span(found.start(), at))


def _call(
    text: str, action: re.Match[str], limit: int, tools: Sequence[ToolSpec]
) -> tuple[ToolCall, int]:
    name = action[1].strip()
    given = _INPUT.match(text, action.end(), limit)
    raw = text[action.start() : limit].strip()
    if not name:
        problem = told("`Action:` must be followed by the name of a tool")
        return ToolCall(CallStatus.MISSING_NAME, raw, problem=problem), limit
    if given is None:
        problem = told("`Action Input:` and a JSON object must follow on the next line")
        return ToolCall(CallStatus.UNCLOSED, raw, name, problem=problem), limit
    try:
        found = read_json(text, given.end())
    except ValueError as error:
        return ToolCall(CallStatus.INVALID_JSON, raw, name, problem=told(str(error))), limit
    if found.end < len(text) and found.end < limit and not _NEXT.match(text, found.end):
        problem = told("there is more text behind its JSON object")
        return ToolCall(CallStatus.INVALID_JSON, raw, name, problem=problem), limit
    raw = text[action.start() : found.end].strip()
    call = call_of_arguments(name, found.value, key="Action Input", tools=tools, raw=raw)
    return call, min(found.end, limit)
