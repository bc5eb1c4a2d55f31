"""`swe`: reasoning, then one call in each turn, on an issue of a repository."""

from __future__ import annotations

from swe_rollout.agent.context import AgentContext
from swe_rollout.agent.presets.rounds import Preset, Rules, has_thought
from swe_rollout.agent.taken_turn import SampledTurn


class Swe(Preset):
    """One reasoned call after the other."""

    require_reasoning: bool = True
    """A call without words or reasoning before it is refused."""
    one_call: bool = True
    """Calls behind the first of a turn are refused."""

    def rules(self, context: AgentContext) -> Rules:
        return _Rules(context, self)


class _Rules(Rules):
    def __init__(self, context: AgentContext, options: Swe) -> None:
        super().__init__(context)
        self._options = options

    def refusal(self, turn: SampledTurn, index: int) -> str:
        if index and self._options.one_call:
            return "one call in each turn; read the result of the first one"
        if self._options.require_reasoning and not has_thought(self.context, turn):
            return "reason before the call: say what you know and what comes next"
        return ""
