"""`react`: a thought, then one action, until a final answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from swe_rollout.agent.context import AgentContext
from swe_rollout.agent.presets.rounds import Behind, Count, Preset, Rules, has_thought
from swe_rollout.agent.prompts import Message, MessageRole
from swe_rollout.agent.taken_turn import SampledTurn
from swe_rollout.types.episode import StopReason
from swe_rollout.types.turn import Observation, ToolCall

_ANSWER = re.compile(r"^(?:Action:[ \t]*)?Final Answer:", re.MULTILINE)
_REFLECT = """

In every thought, first judge your last step by its observation: say what it showed, what you took \
for granted that proved wrong, and whether the plan still holds."""


class React(Preset):
    """Thought, action, observation."""

    require_thought_before_action: bool = True
    """An action without a thought is refused."""
    max_consecutive_thoughts: Count = 3
    """Turns in a row without an action or an answer; then the episode ends (`format_errors`)."""
    self_reflection: bool = False
    """Ask, in the system prompt, to judge each step before the next."""

    @property
    def messages(self) -> frozenset[Behind]:
        return frozenset({Behind.WORDS})

    def rules(self, context: AgentContext) -> Rules:
        return _Rules(context, self)


class _Rules(Rules):
    def __init__(self, context: AgentContext, options: React) -> None:
        super().__init__(context)
        self._options = options
        self._thoughts = 0

    def first(self) -> Sequence[Message] | None:
        if not self._options.self_reflection:
            return None
        return [
            replace(each, content=each.content + _REFLECT)
            if each.role is MessageRole.SYSTEM
            else each
            for each in self.context.task
        ]

    def refusal(self, turn: SampledTurn, index: int) -> str:
        self._thoughts = 0
        if index:
            return "one action at a time; read the observation of the first one"
        needs = self._options.require_thought_before_action
        if needs and not has_thought(self.context, turn, "Thought:"):
            return "write your thought before the action"
        return ""

    def observed(self, call: ToolCall, observation: Observation) -> None:
        del call, observation
        self._thoughts = 0

    def without_call(self, turn: SampledTurn) -> str:
        if _ANSWER.search(turn.words):
            return ""
        self._thoughts += 1
        if self._thoughts >= self._options.max_consecutive_thoughts:
            self.end = StopReason.FORMAT_ERRORS
        return "That was a thought without an action. Go on with an action, or a final answer."
