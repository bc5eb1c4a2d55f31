"""Presets that are one loop: `general`, `tool`, `react` and `swe`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Generic, TypeVar

from pydantic import Field

from swe_rollout.agent.context import AgentContext
from swe_rollout.agent.presets.rounds import Behind, Count, Preset, Rules, has_thought
from swe_rollout.agent.prompts import Message, MessageRole, fill
from swe_rollout.agent.sampled_turn import SampledTurn
from swe_rollout.spec.bounds import ShortText
from swe_rollout.types.episode import StopReason
from swe_rollout.types.turn import Observation, ToolCall

_Options = TypeVar("_Options", bound=Preset)
_ANSWER = re.compile(r"^(?:Action:[ \t]*)?Final Answer:", re.MULTILINE)
_REFLECT = """

In every thought, first judge your last step by its observation: say what it showed, what you took \
for granted that proved wrong, and whether the plan still holds."""


class _WithOptions(Rules, Generic[_Options]):
    def __init__(self, context: AgentContext, options: _Options) -> None:
        super().__init__(context)
        self._options = options


class General(Preset):
    """Call tools until the work is submitted."""

    termination_tools: Annotated[tuple[ShortText, ...], Field(max_length=16)] = ()
    """Exact names of tools whose first executed call ends the episode; tools that submit the work
    do so anyway."""
    show_steps_remaining: bool = False
    """Tell the policy after each result how many turns are left."""
    steps_remaining_template: ShortText = "Turns left: {steps_remaining}"
    """The text of that message."""

    @property
    def messages(self) -> frozenset[Behind]:
        return frozenset({Behind.CALLS} if self.show_steps_remaining else ())

    def rules(self, context: AgentContext) -> Rules:
        return _GeneralRules(context, self)


class _GeneralRules(_WithOptions[General]):
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


class Tool(Preset):
    """Call tools, then answer."""

    allow_multiple_tool_calls: bool = True
    """Whether a turn may contain more than one call."""
    max_tool_calls_per_step: Count = 3
    """Maximum calls in one turn; further ones are refused."""
    require_tool_usage: bool = False
    """Reject an answer before any call was run."""

    @property
    def messages(self) -> frozenset[Behind]:
        return frozenset({Behind.WORDS} if self.require_tool_usage else ())

    def rules(self, context: AgentContext) -> Rules:
        return _ToolRules(context, self)


class _ToolRules(_WithOptions[Tool]):
    _has_used_tool = False

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


class React(Preset):
    """Alternate thought, action and observation."""

    require_thought_before_action: bool = True
    """Refuse an action without a thought."""
    max_consecutive_thoughts: Count = 3
    """Maximum turns in a row without action or answer, which end the episode (`format_errors`)."""
    self_reflection: bool = False
    """Ask the policy, in the system prompt, to judge each step before the next."""

    @property
    def messages(self) -> frozenset[Behind]:
        return frozenset({Behind.WORDS})

    def rules(self, context: AgentContext) -> Rules:
        return _ReactRules(context, self)


class _ReactRules(_WithOptions[React]):
    _thoughts = 0

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


class Swe(Preset):
    """Make one reasoned call after the other."""

    require_reasoning: bool = True
    """Refuse a call without text or reasoning before it."""
    one_call: bool = True
    """Refuse all calls of a turn but the first."""

    def rules(self, context: AgentContext) -> Rules:
        return _SweRules(context, self)


class _SweRules(_WithOptions[Swe]):
    def refusal(self, turn: SampledTurn, index: int) -> str:
        if index and self._options.one_call:
            return "one call in each turn; read the result of the first one"
        if self._options.require_reasoning and not has_thought(self.context, turn):
            return "reason before the call: say what you know and what comes next"
        return ""
