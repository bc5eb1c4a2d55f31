"""The ReAct text format, for engines that give text alone: lines that name an action and its input.

    Thought: …
    Action: NAME
    Action Input: {…}

A turn without `Action:` is no call. The input is one JSON object.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from swe_rollout.agent.parsers.base import (
    Found,
    Mark,
    Reasoning,
    SampledText,
    ToolCallParser,
    attempts,
    not_run,
)
from swe_rollout.agent.parsers.json_call import call_of_arguments, status_of
from swe_rollout.agent.parsers.strict_json import read_json, skip_space
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.types.turn import CallStatus, ToolCall

_OPENER = "Action:"
_ACTION = re.compile(rf"^{_OPENER}", re.MULTILINE)
_NAME = re.compile(r"[ \t]*+([^\n]*+)(?:\n|\Z)")
_INPUT = re.compile(r"\s*+Action Input:[ \t]*+")
_NEXT = re.compile(r"(?<=\n)(?:Thought|Action|Observation|Final Answer):")


class ReactParser(ToolCallParser):
    """Reads actions."""

    def parse(
        self, sampled: SampledText, *, tools: Sequence[ToolSpec], reasoning: Reasoning
    ) -> tuple[ToolCall, ...]:
        text = sampled.text

        def begins(at: int) -> Mark | None:
            first = skip_space(text, at)
            if text.endswith(reasoning.closer, 0, at) and text.startswith(_OPENER, first):
                return Mark(first, _OPENER)
            found = _ACTION.search(text, at)
            return Mark(found.start(), _OPENER) if found else None

        return attempts(
            sampled, begins, lambda opener: read_action(text, opener, tools), reasoning=reasoning
        )


def read_action(text: str, opener: Mark, tools: Sequence[ToolSpec]) -> Found:
    """Read the name and the input behind `Action:`."""
    following = _ACTION.search(text, opener.end)
    limit = following.start() if following else len(text)
    name_line = _NAME.match(text, opener.end, limit)
    name = name_line[1] if name_line else ""
    given = _INPUT.match(text, name_line.end(), limit) if name_line else None

    def refused(status: CallStatus, problem: str) -> Found:
        raw = text[opener.start : limit].strip()
        return Found((ToolCall(status, raw, name, problem=not_run(problem)),), limit)

    if not name:
        problem = f"`{_OPENER}` must be followed by the name of a tool"
        return refused(CallStatus.MISSING_NAME, problem)
    if given is None:
        problem = "`Action Input:` and a JSON object must follow on the next line"
        return refused(CallStatus.UNCLOSED, problem)
    try:
        found = read_json(text, given.end(), limit)
    except ValueError as error:
        return refused(status_of(error), str(error))
    if found.end < limit and not _NEXT.match(text, found.end):
        problem = "there is more text behind its JSON object"
        return refused(CallStatus.INVALID_JSON, problem)
    raw = text[opener.start : found.end].strip()
    call = call_of_arguments(name, found.value, key="Action Input", tools=tools, raw=raw)
    return Found((call,), found.end)
