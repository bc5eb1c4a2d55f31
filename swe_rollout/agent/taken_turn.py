"""A turn that was sampled, as a program gets it, and the answers to its calls so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from swe_rollout.agent.parsers.base import not_run
from swe_rollout.agent.sampler import TurnBuilder
from swe_rollout.errors import InternalError
from swe_rollout.types.episode import StopReason
from swe_rollout.types.turn import Observation, ToolCall


@dataclass(frozen=True, slots=True)
class SampledTurn:
    """What a policy said in one turn; nothing of it has been run."""

    text: str = ""
    """All of it, decoded for people. Empty where a limit left no room for a turn."""
    words: str = ""
    """Its text without reasoning and control tokens."""
    calls: tuple[ToolCall, ...] = ()
    stop: StopReason | None = None
    """Why the agent can't go on as it is: it made no call, or a limit is reached."""


@dataclass(frozen=True, slots=True)
class PendingTurn:
    """The last turn of a branch, and the answers to its calls so far."""

    turn: TurnBuilder

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """Its calls, in order."""
        return self.turn.calls

    @property
    def observations(self) -> list[Observation]:
        """The answers so far, one for each of the first calls."""
        return self.turn.observations

    @property
    def results(self) -> list[str]:
        """The texts of the answers."""
        return [observation.text for observation in self.observations]

    @property
    def left(self) -> tuple[ToolCall, ...]:
        """The calls without an answer."""
        return self.calls[len(self.observations) :]

    def next(self, wanted: Sequence[ToolCall] | None) -> tuple[ToolCall, ...]:
        """Return the wanted calls; InternalError unless they are the next ones without an answer.

        None: all that are left.
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
