"""Shared by grammars whose calls begin with a mark at the start of a line.

A value in them may hold anything, also lines that look like calls. So what stands behind an attempt
that is broken, or has no end, is not read: it may be the rest of that attempt's value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from swe_rollout.agent.parsers.base import Found, Mark, Reasoning, SampledText, attempts, not_run
from swe_rollout.agent.parsers.pythonic import STRING, python_calls
from swe_rollout.agent.parsers.strict_json import skip_space
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.types.turn import CallStatus, ToolCall

_PYTHON = re.compile(
    rf"(?P<string>{STRING.pattern})|(?P<open>[(\[{{])|(?P<close>[)\]}}])", re.DOTALL
)
_REST_OF_LINE = re.compile(r"[ \t]*+(?P<more>[^\n]*+)")
_READ = {CallStatus.OK, CallStatus.UNKNOWN_TOOL, CallStatus.BAD_ARGUMENTS}


def calls_at(
    sampled: SampledText,
    mark: str,
    read: Callable[[Mark], Found],
    *,
    reasoning: Reasoning,
) -> tuple[ToolCall, ...]:
    """Return what `read` finds at each `mark` that begins a line."""
    text, pattern = sampled.text, re.compile(rf"^{re.escape(mark)}", re.MULTILINE)

    def begins(at: int) -> Mark | None:
        first = skip_space(text, at)
        if text.endswith(reasoning.closer, 0, at) and text.startswith(mark, first):
            return Mark(first, mark)
        found = pattern.search(text, at)
        return Mark(found.start(), mark) if found else None

    def checked(opener: Mark) -> Found:
        found = read(opener)
        is_whole = all(call.status in _READ for call in found.calls)
        return found if is_whole else Found(found.calls, len(text))

    return attempts(sampled, begins, checked, reasoning=reasoning)


@dataclass(frozen=True, slots=True)
class Refused:
    """An attempt that can't run, up to the end of the turn."""

    text: str
    opener: Mark

    def __call__(self, status: CallStatus, problem: str, name: str = "") -> Found:
        """Return it with the reason why."""
        raw = self.text[self.opener.start :].strip()
        return Found((ToolCall(status, raw, name, problem=not_run(problem)),), len(self.text))


def python_call(text: str, opener: Mark, name: str, tools: Sequence[ToolSpec]) -> Found:
    """Read `NAME(KEY=VALUE, …)` behind an opener; values are Python literals.

    It must be all of its line, or of its lines: what follows may be the rest of a broken value.
    """
    refused = Refused(text, opener)
    end = _closing(text, skip_space(text, opener.end))
    if end is None:
        return refused(CallStatus.UNCLOSED, "its parentheses or its quotes are not closed", name)
    rest = _REST_OF_LINE.match(text, end)
    if rest is not None and rest["more"].strip():
        problem = "nothing may follow it on its line; write line breaks in a value as \\n"
        return refused(CallStatus.MALFORMED, problem, name)
    raw = text[skip_space(text, opener.end) : end]
    (call, *others) = python_calls(raw, tools, is_lines=True)
    return Found((call, *others), end)


def _closing(text: str, start: int) -> int | None:
    """Return the offset behind the bracket that closes the first one."""
    depth = 0
    for found in _PYTHON.finditer(text, start):
        if found["open"]:
            depth += 1
        elif found["close"]:
            depth -= 1
            if depth <= 0:
                return found.end()
    return None
