"""The two grammars of Mistral behind `[TOOL_CALLS]`.

Up to Small 3.1 one JSON list: `[TOOL_CALLS] [{"name": …, "arguments": {…}, "id": "…"}]`. Later one
`[TOOL_CALLS]NAME[ARGS]{…}` for each call, perhaps with `[CALL_ID]ID` before `[ARGS]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from swe_rollout.agent.parsers.base import Found, Mark, OpenerParser, SampledText, not_run
from swe_rollout.agent.parsers.json_call import call_of_arguments, call_of_object, status_of
from swe_rollout.agent.parsers.strict_json import SPACE, read_json, skip_space
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.types.turn import CallStatus, ToolCall

_CALLS = "[TOOL_CALLS]"
_ARGUMENTS = "[ARGS]"
_ID = "[CALL_ID]"
_NO_NAME = re.compile(r"[\s\[\]{}]")


def _list(sampled: SampledText, opener: Mark, tools: Sequence[ToolSpec]) -> Found:
    """Read one JSON list of calls, which ends the turn."""
    text = sampled.text
    raw, end = text[opener.end :].strip(), len(text)
    try:
        value = read_json(text, opener.end).whole
    except ValueError as error:
        return Found((ToolCall(status_of(error), raw, problem=not_run(str(error))),), end)
    if not isinstance(value, list) or not value:
        problem = not_run(f"behind {_CALLS} there must be a JSON list of calls")
        return Found((ToolCall(CallStatus.MALFORMED, raw, problem=problem),), end)
    return Found(tuple(_elements(sampled, opener.end, len(value), tools)), end)


def _elements(
    sampled: SampledText, start: int, count: int, tools: Sequence[ToolSpec]
) -> Iterator[ToolCall]:
    """Read each element of a valid list by itself, so that it has its own text and span."""
    text = sampled.text
    at = skip_space(text, start)
    for _ in range(count):
        # Behind the bracket, or the comma.
        begin = skip_space(text, at + 1)
        found = read_json(text, begin)
        at = found.end
        raw = text[begin:at].rstrip(SPACE)
        call = call_of_object(
            found.value, arguments_key="arguments", tools=tools, raw=raw, id_key="id"
        )
        yield replace(call, span=sampled.span(begin, begin + len(raw)))


def _named(sampled: SampledText, opener: Mark, tools: Sequence[ToolSpec]) -> Found:
    text, start = sampled.text, opener.end
    mark = sampled.first((_ARGUMENTS, _CALLS), start)
    end = len(text) if mark is None else mark.start
    name, _, call_id = text[start:end].partition(_ID)
    if mark is None or mark.token != _ARGUMENTS:
        problem = not_run(f"NAME{_ARGUMENTS} and a JSON object must follow {_CALLS}")
        status = CallStatus.MALFORMED if _NO_NAME.search(name) else CallStatus.UNCLOSED
        return Found((ToolCall(status, text[start:end], problem=problem),), end)
    call, end = _with_arguments(sampled, mark.end, name, tools)
    if not name:
        problem = not_run("it does not name a tool")
        call = ToolCall(CallStatus.MISSING_NAME, "", problem=problem)
    return Found((replace(call, raw=text[start:end], id=call_id),), end)


def _with_arguments(
    sampled: SampledText, start: int, name: str, tools: Sequence[ToolSpec]
) -> tuple[ToolCall, int]:
    """Read a call from its arguments on; also return the offset behind it."""
    try:
        found = read_json(sampled.text, start)
    except ValueError as error:
        call = ToolCall(status_of(error), "", name, problem=not_run(str(error)))
        return call, _next(sampled, start)
    end = _next(sampled, found.end)
    if found.end != end:
        problem = not_run("there is more text behind its JSON object")
        return ToolCall(CallStatus.INVALID_JSON, "", name, problem=problem), end
    return call_of_arguments(name, found.value, key="arguments", tools=tools, raw=""), end


def _next(sampled: SampledText, start: int) -> int:
    following = sampled.find(_CALLS, start)
    return len(sampled.text) if following is None else following


MISTRAL = OpenerParser((_CALLS,), _list)
MISTRAL_V11 = OpenerParser((_CALLS,), _named)
