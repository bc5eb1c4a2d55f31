"""`Action:` and a JSON object with the name of a tool and its parameters, read with tolerance.

    Thought: …
    Action: {"name": "NAME", "parameters": {…}}

The object may stand in a fence and on several lines; comments and commas before a closing bracket
are left out, and `arguments` is read as `parameters`. A format for models that write JSON so: all
others are strict.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from swe_rollout.agent.parsers.base import Found, Mark, Reasoning, SampledText, ToolCallParser
from swe_rollout.agent.parsers.json_call import call_of_object
from swe_rollout.agent.parsers.marked_lines import Refused, calls_at
from swe_rollout.agent.parsers.strict_json import read_json
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.types.turn import CallStatus, ToolCall

_PIECE = re.compile(
    r"(?P<string>\"(?:[^\"\\]|\\.)*+\"?)|(?P<comment>//[^\n]*+|/\*.*?(?:\*/|\Z))"
    r"|(?P<open>[{\[])|(?P<close>[}\]])|(?P<comma>,)",
    re.DOTALL,
)
_BEGIN = re.compile(r"\s*+(?:```(?:json)?\s*+)?(?=\{)")
_BEHIND = re.compile(r"[ \t]*+(?:\n\s*+```|```)?[ \t]*+(?:\n|\Z)")


class ActionJsonParser(ToolCallParser):
    """Reads actions in JSON."""

    def parse(
        self, sampled: SampledText, *, tools: Sequence[ToolSpec], reasoning: Reasoning
    ) -> tuple[ToolCall, ...]:
        text = sampled.text

        def read(opener: Mark) -> Found:
            refused = Refused(text, opener)
            begun = _BEGIN.match(text, opener.end)
            if begun is None:
                problem = '`Action:` must be followed by {"name": …, "parameters": {…}}'
                return refused(CallStatus.MISSING_NAME, problem)
            plain, end = _plain(text, begun.end())
            if end is None:
                return refused(CallStatus.UNCLOSED, "its JSON object is not closed")
            if _BEHIND.match(text, end) is None:
                problem = "there is more text behind its JSON object"
                return refused(CallStatus.INVALID_JSON, problem)
            try:
                value = read_json(plain).whole
            except ValueError as error:
                return refused(CallStatus.INVALID_JSON, str(error))
            key = "arguments" if isinstance(value, dict) and "arguments" in value else "parameters"
            raw = text[opener.start : end]
            call = call_of_object(value, tools=tools, raw=raw, arguments_key=key)
            return Found((call,), end)

        return calls_at(sampled, "Action:", read, reasoning=reasoning)


def _plain(text: str, start: int) -> tuple[str, int | None]:
    """Return the object at `start` as strict JSON would write it, and the offset behind it."""
    pieces, depth, at, comma = list[str](), 0, start, False
    for found in _PIECE.finditer(text, start):
        between = text[at : found.start()]
        if comma and (between.strip() or not (found["close"] or found["comment"])):
            pieces.append(",")
            comma = False
        pieces.append(between)
        at = found.end()
        if found["comment"]:
            continue
        if found["comma"]:
            comma = True
            continue
        pieces.append(found[0])
        if found["open"]:
            depth += 1
        elif found["close"]:
            comma = False
            depth -= 1
            if depth == 0:
                return "".join(pieces), found.end()
    return "", None
