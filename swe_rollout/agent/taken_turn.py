"""The two forms of a turn while its episode runs: what the policy said, and its record so far.

`SampledTurn` is what a program gets; `TurnBuilder` collects what `types.turn.Turn` stores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from swe_rollout.agent.parsers.base import not_run
from swe_rollout.errors import InternalError
from swe_rollout.tokens.log import RequestProof
from swe_rollout.types.episode import StopReason
from swe_rollout.types.turn import FinishReason, Generation, Observation, ToolCall, Turn, WeightSpan


@dataclass(frozen=True, slots=True)
class SampledTurn:
    """What a policy said in one turn; nothing of it has been run."""

    text: str = ""
    """The whole text, decoded for people; empty where a limit left no room for a turn."""
    words: str = ""
    """The text without reasoning and control tokens."""
    calls: tuple[ToolCall, ...] = ()
    stop: StopReason | None = None
    """Why the agent can't go on as it is: it made no call, or a limit is reached."""
    reasoning_is_open: bool = False
    """Whether the turn was cut inside its reasoning."""


@dataclass(slots=True)
class TurnBuilder:
    """A turn in the making: what was sampled and the answers so far; `build` returns its record."""

    index: int
    request: RequestProof
    """Proof of the first request; a turn that was aborted goes on from its own ids."""
    branch: int = 0
    message: str = ""
    """The user message that the program wrote before the turn."""
    ids: list[int] = field(default_factory=list)
    finish_reason: FinishReason = FinishReason.ABORT
    cached_tokens: int = 0
    spans: list[WeightSpan] = field(default_factory=list)
    text: str = ""
    """The decoded text, set once the turn has been read."""
    calls: tuple[ToolCall, ...] = ()
    observations: list[Observation] = field(default_factory=list)
    """The answers so far, one for each of the first calls."""
    engine_s: float = 0.0
    tools_s: float = 0.0
    counted_tokens: int = 0
    """The number of tokens by the chat API's count, for a turn without ids."""

    @property
    def results(self) -> list[str]:
        """The texts of the answers so far."""
        return [observation.text for observation in self.observations]

    @property
    def left(self) -> tuple[ToolCall, ...]:
        """The calls that have no answer yet."""
        return self.calls[len(self.observations) :]

    def next(self, wanted: Sequence[ToolCall] | None) -> tuple[ToolCall, ...]:
        """Return the wanted calls, or all that are left where `wanted` is None.

        Raises InternalError unless they are the next ones without an answer.
        """
        if wanted is None:
            return self.left
        found = self.left[: len(wanted)]
        if len(found) != len(wanted) or any(a is not b for a, b in zip(found, wanted, strict=True)):
            raise InternalError(
                "the agent answered calls that are not the next ones of its last turn",
                why=f"{len(self.left)} of its {len(self.calls)} calls have no answer yet",
                fix="answer the calls of the last turn once each, in their order",
            )
        return found

    def refuse_the_rest(self) -> None:
        """Answer the calls behind a submission, so that the conversation can go on."""
        problem = not_run("an earlier call of the turn handed the work in")
        self.observations.extend(Observation(problem) for _ in self.left)

    def add(self, generation: Generation) -> None:
        """Add one response; spans of weights are counted from the start of the turn."""
        before = len(self.ids)
        if not before:
            self.cached_tokens = generation.cached_tokens
        self.spans += [
            WeightSpan(span.version, before + span.start, before + span.end)
            for span in generation.weight_versions
        ]
        self.ids += generation.token_ids
        self.finish_reason = generation.finish_reason

    def build(self) -> Turn:
        """Return the record of the turn so far."""
        return Turn(
            index=self.index,
            request=self.request,
            text=self.text,
            finish_reason=self.finish_reason,
            completion_tokens=len(self.ids) or self.counted_tokens,
            cached_tokens=self.cached_tokens,
            tool_calls=self.calls,
            observations=tuple(self.observations),
            weight_versions=tuple(self.spans),
            engine_s=self.engine_s,
            tools_s=self.tools_s,
            branch=self.branch,
            message=self.message,
        )
