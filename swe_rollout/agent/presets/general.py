"""`general`: the loop with the usual options of a configurable agent."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from swe_rollout.agent.context import AgentContext
from swe_rollout.agent.presets.rounds import Behind, Preset, Rules
from swe_rollout.agent.prompts import fill
from swe_rollout.agent.taken_turn import SampledTurn
from swe_rollout.spec.bounds import ShortText
from swe_rollout.types.episode import StopReason
from swe_rollout.types.turn import Observation, ToolCall


class General(Preset):
    """Calls until the work is handed in."""

    termination_tools: Annotated[tuple[ShortText, ...], Field(max_length=16)] = ()
    """Tools whose first call that is run ends the episode, by their exact names; tools that hand
    the work in do so anyway."""
    show_steps_remaining: bool = False
    """Tell the policy behind each result how many turns are left."""
    steps_remaining_template: ShortText = "Turns left: {steps_remaining}"
    """What it is told."""

    @property
    def messages(self) -> frozenset[Behind]:
        return frozenset({Behind.CALLS} if self.show_steps_remaining else ())

    def rules(self, context: AgentContext) -> Rules:
        return _Rules(context, self)


class _Rules(Rules):
    def __init__(self, context: AgentContext, options: General) -> None:
        super().__init__(context)
        self._options = options

    def observed(self, call: ToolCall, observation: Observation) -> None:
        del observation
        if call.name in self._options.termination_tools:
            self.end = StopReason.SUBMITTED

    def between(self, turn: SampledTurn, rounds: int) -> str:
        del turn
        options, turns = self._options, self.context.parts.limits.turns
        left = min(options.max_rounds or turns, turns) - rounds
        if not options.show_steps_remaining or left <= 0:
            return ""
        return fill(options.steps_remaining_template, {"steps_remaining": str(left)})
