"""Grammars of several JSON calls that end a turn: Llama's and Mistral's.

    {"name": "NAME", "parameters": {…}}; {…}
    [TOOL_CALLS] [{"name": "NAME", "arguments": {…}, "id": "ID"}]
    [TOOL_CALLS]NAME[CALL_ID]ID[ARGS]{…}

Llama's calls follow `<|python_tag|>`, in Llama 4 `<|python_end|>` after text, or they are the whole
turn, which then starts with a brace. Mistral's are a list up to Small 3.1; later models write one
mark before each call and may omit its id.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from swe_rollout.agent.parsers.base import (
    Found,
    Mark,
    OpenerParser,
    Reasoning,
    Refusal,
    SampledText,
    ToolCallParser,
    attempts,
    text_start,
)
from swe_rollout.agent.parsers.json_call import call_of_arguments, call_of_object, status_of
from swe_rollout.agent.parsers.strict_json import SPACE, read_json, skip_space
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.types.turn import CallStatus, ToolCall

_TAGS = ("<|python_tag|>", "<|python_end|>")
_CALLS = "[TOOL_CALLS]"
_ARGUMENTS = "[ARGS]"
_ID = "[CALL_ID]"
_NO_NAME = re.compile(r"[\s\[\]{}]")
_MORE = "there is more text behind its JSON object"


class Llama3Parser(ToolCallParser):
    """Reads calls at the end of a turn, or calls that are the whole turn."""

    def parse(
        self, sampled: SampledText, *, tools: Sequence[ToolSpec], reasoning: Reasoning
    ) -> tuple[ToolCall, ...]:
        brace = skip_space(sampled.text, text_start(sampled, reasoning))

        def begins(at: int) -> Mark | None:
            if at <= brace and sampled.text.startswith("{", brace):
                return Mark(brace, "")
            return sampled.first(_TAGS, at)

        def read(opener: Mark) -> Found:
            return Found(tuple(_objects(sampled, opener.end, tools)), len(sampled.text))

        return attempts(sampled, begins, read, reasoning=reasoning)


def _objects(sampled: SampledText, start: int, tools: Sequence[ToolSpec]) -> Iterator[ToolCall]:
    """Read objects, separated by semicolons, up to the end of the turn."""
    text, at = sampled.text, start
    while True:
        try:
            found = read_json(text, at)
        except ValueError as error:
            yield _rest(sampled, at, Refusal(status_of(error), str(error)))
            return
        if found.end < len(text) and text[found.end] != ";":
            yield _rest(sampled, at, Refusal(CallStatus.INVALID_JSON, _MORE))
            return
        raw = text[at : found.end]
        call = call_of_object(found.value, arguments_key="parameters", tools=tools, raw=raw)
        yield replace(call, span=sampled.span(at, found.end))
        if found.end == len(text):
            return
        at = found.end + 1


def _rest(sampled: SampledText, start: int, refusal: Refusal) -> ToolCall:
    raw = sampled.text[start:]
    span = sampled.span(start, len(sampled.text)) if raw else None
    return replace(refusal.call(raw), span=span)


def _list(sampled: SampledText, opener: Mark, tools: Sequence[ToolSpec]) -> Found:
    """Read one JSON list of calls, which ends the turn."""
    text = sampled.text
    raw, end = text[opener.end :].strip(), len(text)
    try:
        value = read_json(text, opener.end).whole
    except ValueError as error:
        return Refusal(status_of(error), str(error)).found(raw, end)
    if not isinstance(value, list) or not value:
        problem = f"behind {_CALLS} there must be a JSON list of calls"
        return Refusal(CallStatus.MALFORMED, problem).found(raw, end)
    return Found(tuple(_elements(sampled, opener.end, len(value), tools)), end)


def _elements(
    sampled: SampledText, start: int, count: int, tools: Sequence[ToolSpec]
) -> Iterator[ToolCall]:
    """Read each element of a valid list separately, so that it has its own text and span."""
    text = sampled.text
    at = skip_space(text, start)
    for _ in range(count):
        # After the bracket or comma.
        begin = skip_space(text, at + 1)
        found = read_json(text, begin)
        at = found.end
        raw = text[begin:at].rstrip(SPACE)
        call = call_of_object(
            found.value, arguments_key="arguments", tools=tools, raw=raw, id_key="id"
        )
        yield replace(call, span=sampled.span(begin, begin + len(raw)))


def _named(sampled: SampledText, opener: Mark, tools: Sequence[ToolSpec]) -> Found:
    """Read one call with its name before its arguments."""
    text, start = sampled.text, opener.end
    mark = sampled.first((_ARGUMENTS, _CALLS), start)
    end = len(text) if mark is None else mark.start
    name, _, call_id = text[start:end].partition(_ID)
    if mark is None or mark.token != _ARGUMENTS:
        problem = f"NAME{_ARGUMENTS} and a JSON object must follow {_CALLS}"
        status = CallStatus.MALFORMED if _NO_NAME.search(name) else CallStatus.UNCLOSED
        return Refusal(status, problem).found(text[start:end], end)
    call, end = _with_arguments(sampled, mark.end, name, tools)
    if not name:
        call = Refusal(CallStatus.MISSING_NAME, "it does not name a tool").call("")
    return Found((replace(call, raw=text[start:end], id=call_id),), end)


def _with_arguments(
    sampled: SampledText, start: int, name: str, tools: Sequence[ToolSpec]
) -> tuple[ToolCall, int]:
    """Read a call from its arguments on; return it and the offset after it."""

    def following(at: int) -> int:
        found = sampled.find(_CALLS, at)
        return len(sampled.text) if found is None else found

    try:
        found = read_json(sampled.text, start)
    except ValueError as error:
        return Refusal(status_of(error), str(error), name).call(""), following(start)
    end = following(found.end)
    if found.end != end:
        return Refusal(CallStatus.INVALID_JSON, _MORE, name).call(""), end
    return call_of_arguments(name, found.value, key="arguments", tools=tools, raw=""), end


LLAMA3 = Llama3Parser()
MISTRAL = OpenerParser((_CALLS,), _list)
MISTRAL_V11 = OpenerParser((_CALLS,), _named)
