"""`tool`: calls, perhaps several in a turn, until a turn without one, which is the answer."""

from __future__ import annotations

from swe_rollout.agent.context import AgentContext
from swe_rollout.agent.presets.rounds import Behind, Count, Preset, Rules
from swe_rollout.agent.taken_turn import SampledTurn
from swe_rollout.types.turn import Observation, ToolCall


class Tool(Preset):
    """Calls and an answer."""

    allow_multiple_tool_calls: bool = True
    """Whether a turn may hold more than one call."""
    max_tool_calls_per_step: Count = 3
    """Calls of one turn; further ones are refused."""
    require_tool_usage: bool = False
    """An answer before any call was run is not taken."""

    @property
    def messages(self) -> frozenset[Behind]:
        return frozenset({Behind.WORDS} if self.require_tool_usage else ())

    def rules(self, context: AgentContext) -> Rules:
        return _Rules(context, self)


class _Rules(Rules):
    def __init__(self, context: AgentContext, options: Tool) -> None:
        super().__init__(context)
        self._options = options
        self._has_used_tool = False

    def refusal(self, turn: SampledTurn, index: int) -> str:
        del turn
        options = self._options
        most = options.max_tool_calls_per_step if options.allow_multiple_tool_calls else 1
        return f"a turn may hold {most} at most" if index >= most else ""

    def observed(self, call: ToolCall, observation: Observation) -> None:
        del call, observation
        self._has_used_tool = True

    def without_call(self, turn: SampledTurn) -> str:
        del turn
        if self._has_used_tool or not self._options.require_tool_usage:
            return ""
        return "You answered without calling a tool. Call one first, and answer from its result."
