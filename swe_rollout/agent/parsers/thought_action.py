"""The ReAct text with actions in either form:

    Thought: …
    Action: NAME(KEY=VALUE, …)

and `Action: NAME` with `Action Input: {…}` on the next line. A turn without `Action:` is no call;
`Final Answer: …` and `Action: Final Answer: …` are none. What follows an observation that the
policy wrote itself is not run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from swe_rollout.agent.parsers.base import Found, Mark, Reasoning, SampledText, ToolCallParser
from swe_rollout.agent.parsers.marked_lines import Refused, calls_at, python_call
from swe_rollout.agent.parsers.react import read_action
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.types.turn import CallStatus, ToolCall

_NAME = re.compile(r"[ \t]*+([A-Za-z_][\w.]*)\(")
_ANSWER = re.compile(r"[ \t]*+Final Answer:")
_OBSERVED = re.compile(r"^Observation:", re.MULTILINE)


class ThoughtActionParser(ToolCallParser):
    """Reads actions."""

    def parse(
        self, sampled: SampledText, *, tools: Sequence[ToolSpec], reasoning: Reasoning
    ) -> tuple[ToolCall, ...]:
        text = sampled.text
        latest = 0

        def read(opener: Mark) -> Found:
            nonlocal latest
            if _OBSERVED.search(text, latest, opener.start):
                problem = "an observation before it was made up; stop after an action"
                return Refused(text, opener)(CallStatus.MALFORMED, problem)
            if _ANSWER.match(text, opener.end):
                return Found((), len(text))
            named = _NAME.match(text, opener.end)
            found = (
                python_call(text, opener, named[1], tools)
                if named
                else read_action(text, opener, tools)
            )
            latest = found.end
            return found

        return calls_at(sampled, "Action:", read, reasoning=reasoning)
