"""The Hermes grammar: `<tool_call>`, one JSON object with `name` and `arguments`, `</tool_call>`.

The JSON decoder says where the object ends, so a delimiter in one of its strings cuts nothing.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NoReturn

from swe_rollout.agent.parsers.base import (
    CLOSER,
    Attempt,
    SampledText,
    ToolCallParser,
    attempts,
    checked,
    refused,
)
from swe_rollout.trajectory import CallStatus, ToolCall

if TYPE_CHECKING:
    from collections.abc import Sequence

    from swe_rollout.agent.parsers.base import Reasoning
    from swe_rollout.agent.tools.base import ToolSpec

_SPACE = re.compile(r"[ \t\r\n]*")


class HermesParser(ToolCallParser):
    """Reads calls written as JSON."""

    def parse(
        self,
        sampled: SampledText,
        *,
        tools: Sequence[ToolSpec],
        reasoning: Reasoning,
    ) -> tuple[ToolCall, ...]:
        """Every attempt outside the reasoning, in order."""
        return attempts(
            sampled,
            lambda start: _read(sampled, start, tools),
            reasoning=reasoning,
        )


def _read(sampled: SampledText, start: int, tools: Sequence[ToolSpec]) -> Attempt:
    try:
        value, end = _DECODER.raw_decode(sampled.text, _skip_space(sampled.text, start))
        # A lone surrogate escape decodes, but it is no text: nothing could store or run it.
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        return refused(
            sampled, start, status=CallStatus.INVALID_JSON, problem=_problem(error, start)
        )
    end = _skip_space(sampled.text, end)
    if sampled.find(CLOSER, end) != end:
        problem = "there is more text behind its JSON object"
        return refused(
            sampled, start, status=CallStatus.INVALID_JSON, problem=problem, known_to=end
        )
    return Attempt(_call(value, sampled.text[start:end], tools), end + len(CLOSER))


def _call(value: object, raw: str, tools: Sequence[ToolSpec]) -> ToolCall:
    match value:
        case {"name": str(name), "arguments": dict(arguments), **rest} if name and not rest:
            return checked(name, arguments, tools=tools, raw=raw)
        case {"name": str(name), "arguments": dict()} if name:
            problem = "the call was not run: it may have no keys but name and arguments"
            return ToolCall(CallStatus.MALFORMED, raw, name, problem=problem)
        case {"name": str(name)} if name:
            problem = f'the call of {name[:80]} was not run: "arguments" must be a JSON object'
            return ToolCall(CallStatus.BAD_ARGUMENTS, raw, name, problem=problem)
        case dict():
            problem = 'the call was not run: "name" must be the name of a tool'
            return ToolCall(CallStatus.MISSING_NAME, raw, problem=problem)
        case _:
            problem = "the call was not run: it must be a JSON object with name and arguments"
            return ToolCall(CallStatus.MALFORMED, raw, problem=problem)


def _problem(error: ValueError | RecursionError, start: int) -> str:
    match error:
        case json.JSONDecodeError():
            why = f"{error.msg} at character {error.pos - start}"
        case UnicodeEncodeError():
            why = "a string holds half of a surrogate pair"
        case RecursionError():
            why = "it is nested too deeply"
        case _:
            why = str(error)
    return f"its JSON is invalid: {why}"


def _skip_space(text: str, start: int) -> int:
    found = _SPACE.match(text, start)
    return found.end() if found else start


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key appears twice in one object")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)
