"""The Hermes grammar: `<tool_call>`, one JSON object with `name` and `arguments`, `</tool_call>`.

The JSON decoder says where the object ends, so a delimiter in one of its strings cuts nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from swe_rollout.agent.parsers.base import (
    Delimiters,
    Found,
    Mark,
    Reasoning,
    Refusal,
    SampledText,
    ToolCallParser,
    refused,
)
from swe_rollout.agent.parsers.exact_calls import calls_between
from swe_rollout.agent.parsers.json_call import call_of_object
from swe_rollout.agent.parsers.strict_json import read_json
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.types.turn import CallStatus, ToolCall

CALL = Delimiters("<tool_call>", "</tool_call>")


class HermesParser(ToolCallParser):
    """Reads one JSON object between the tags."""

    def parse(
        self, sampled: SampledText, *, tools: Sequence[ToolSpec], reasoning: Reasoning
    ) -> tuple[ToolCall, ...]:
        return calls_between(
            sampled, CALL, lambda opener: _read(sampled, opener, tools), reasoning=reasoning
        )


def _read(sampled: SampledText, opener: Mark, tools: Sequence[ToolSpec]) -> Found:
    start, status = opener.end, CallStatus.INVALID_JSON
    try:
        found = read_json(sampled.text, start)
    except ValueError as error:
        return refused(sampled, start, CALL, Refusal(status, str(error)))
    end = found.end
    if sampled.find(CALL.closer, end) != end:
        problem = "there is more text behind its JSON object"
        return refused(sampled, start, CALL, Refusal(status, problem, known_to=end))
    raw = sampled.text[start:end]
    call = call_of_object(found.value, arguments_key="arguments", tools=tools, raw=raw)
    return Found((call,), end + len(CALL.closer))


HERMES = HermesParser()
