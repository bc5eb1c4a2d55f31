"""The loop of all presets, and the rules that a preset may add to it.

A preset is frozen and serves all episodes; the `Rules` that it makes hold the state of one. Rules
refuse calls and write messages of the harness. Nothing is ever written for the policy.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from enum import Enum
from typing import Annotated

from pydantic import Field

from swe_rollout.agent.branches import compaction_is_due
from swe_rollout.agent.context import AgentContext
from swe_rollout.agent.parsers.base import not_run
from swe_rollout.agent.prompts import Message
from swe_rollout.agent.sampled_turn import SampledTurn
from swe_rollout.spec.model import Model
from swe_rollout.types.episode import StopReason
from swe_rollout.types.turn import CallStatus, Observation, ToolCall

Count = Annotated[int, Field(ge=1, le=100_000)]


class Behind(Enum):
    """What a message of the harness may follow: results of calls, or a turn without any."""

    CALLS = "the results of calls"
    WORDS = "a turn without calls"


class Rules:
    """The rules of a preset in one episode; this base class allows everything."""

    def __init__(self, context: AgentContext) -> None:
        self.context = context
        self.end: StopReason | None = None
        """The stop reason, set by a rule that ends the episode."""

    def first(self) -> Sequence[Message] | None:
        """Return the first messages; None keeps the task's."""
        return None

    def refusal(self, turn: SampledTurn, index: int) -> str:
        """Return why call `index` of the turn, which could run, is refused; '' lets it run."""
        del turn, index
        return ""

    def observed(self, call: ToolCall, observation: Observation) -> None:
        """Record a call that was run."""

    def without_call(self, turn: SampledTurn) -> str:
        """Return the message to a policy that made no call; '' if it has finished."""
        del turn
        return ""

    def between(self, turn: SampledTurn, rounds: int) -> str:
        """Return the message after the results of a turn, the `rounds`-th; '' for none."""
        del turn, rounds
        return ""


class Preset(Model):
    """Options of an agent, and the agent itself."""

    max_rounds: Count | None = None
    """Maximum turns of the policy; None for only `limits.turns`."""

    @property
    def messages(self) -> frozenset[Behind]:
        """Where the rules write messages, which the chat template must be able to append."""
        return frozenset()

    @abstractmethod
    def rules(self, context: AgentContext) -> Rules:
        """Return the rules of a new episode."""

    async def __call__(self, context: AgentContext) -> StopReason:
        """Take turns until the policy, a rule or a limit ends the episode."""
        rules, rounds, in_row = self.rules(context), 0, 0
        await context.begin(rules.first())
        while self.max_rounds is None or rounds < self.max_rounds:
            turn, rounds = await _sample(context), rounds + 1
            if turn.stop not in (None, StopReason.FINISHED):
                return turn.stop
            if turn.calls:
                was_kept = await _answer(context, turn, rules)
                stop = context.stop or rules.end
                message = "" if stop else rules.between(turn, rounds)
            else:
                message = rules.without_call(turn)
                was_kept = not message
                stop = rules.end or (None if message else StopReason.FINISHED)
            if stop is not None:
                return stop
            in_row = 0 if was_kept else in_row + 1
            if in_row >= context.parts.limits.format_errors:
                return StopReason.FORMAT_ERRORS
            if message:
                context.say(message)
        return StopReason.TURN_LIMIT


async def _sample(context: AgentContext) -> SampledTurn:
    """Sample a turn, after compacting a log that has grown too long."""
    is_due = (
        context.stop is None
        and context.log.sampled > 0
        and compaction_is_due(context.log, 0, context.parts.limits)
    )
    if is_due and (stop := await context.compact()) is not None:
        return SampledTurn(stop=stop)
    return await context.generate()


async def _answer(context: AgentContext, turn: SampledTurn, rules: Rules) -> bool:
    """Run the calls that the rules allow, one by one; return whether none was refused."""
    was_kept = True
    for index, call in enumerate(turn.calls):
        is_readable = call.status is CallStatus.OK
        if is_readable and (why := rules.refusal(turn, index)):
            context.answer(call, not_run(why))
            was_kept = False
        else:
            for observation in await context.run([call]):
                if is_readable:
                    rules.observed(call, observation)
        if context.stop is not None or rules.end is not None:
            break
    return was_kept


def has_thought(context: AgentContext, turn: SampledTurn, *labels: str) -> bool:
    """Return whether the last turn has text or reasoning before its first call.

    `labels` do not count as text. It looks at the tokens, as formats start calls differently.
    """
    renderer = context.parts.renderer
    if renderer is None:
        return bool(turn.words.strip()) or not turn.calls
    span = next((call.span for call in turn.calls), None)
    if span is None:
        return True
    start = len(context.log) - context.turns[-1].completion_tokens
    text = renderer.decode(context.log.ids[start : start + span.start])
    marks = renderer.reasoning(opened=False)
    for mark in (marks.opener, marks.closer, *labels):
        text = text.replace(mark, "")
    return bool(text.strip())
