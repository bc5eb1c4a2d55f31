"""Calls as lines `TOOL_CALL: NAME(KEY=VALUE, …)`, with Python literals as values.

Several may stand in one turn, with words between them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from swe_rollout.agent.parsers.base import Found, Mark, Reasoning, SampledText, ToolCallParser
from swe_rollout.agent.parsers.marked_lines import Refused, calls_at, python_call
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.types.turn import CallStatus, ToolCall

_NAME = re.compile(r"[ \t]*+([A-Za-z_][\w.]*)\(")


class ToolCallLineParser(ToolCallParser):
    """Reads lines that are calls."""

    def parse(
        self, sampled: SampledText, *, tools: Sequence[ToolSpec], reasoning: Reasoning
    ) -> tuple[ToolCall, ...]:
        text = sampled.text

        def read(opener: Mark) -> Found:
            named = _NAME.match(text, opener.end)
            if named is None:
                problem = "`TOOL_CALL:` must be followed by NAME(KEY=VALUE, …)"
                return Refused(text, opener)(CallStatus.MISSING_NAME, problem)
            return python_call(text, opener, named[1], tools)

        return calls_at(sampled, "TOOL_CALL:", read, reasoning=reasoning)
