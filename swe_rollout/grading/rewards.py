"""Score graded episodes: a reward is the weighted sum of named terms.

`REWARD_TERMS` has the built-in terms and those of users. A term that breaks is a grading failure,
never a score: the episode is recorded without a reward.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from inspect import isawaitable
from typing import Final, Protocol, SupportsFloat, runtime_checkable

from swe_rollout.errors import GraderError, caught
from swe_rollout.extension import ExtensionPoint
from swe_rollout.spec.grading import RewardUse
from swe_rollout.types.episode import StopReason
from swe_rollout.types.instance import Instance
from swe_rollout.types.turn import ToolCall, Turn
from swe_rollout.types.verdict import Reward, RewardTerm, Verdict, VerdictStatus

_MODEL_CHARS: Final = 256
_ANSWER_CHARS: Final = 4000
_FIX: Final = (
    "correct it, then run again with --rerun-masked: a term returns a finite number for every "
    "graded episode (docs/how-to/extend/rewards.md)"
)


@dataclass(frozen=True, slots=True)
class RewardInput:
    """A graded episode as reward terms see it."""

    instance: Instance
    verdict: Verdict
    patch: str = ""
    """The policy's diff."""
    turns: tuple[Turn, ...] = ()
    stop_reason: StopReason | None = None

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """All attempted tool calls, including those that did not parse."""
        return tuple(call for turn in self.turns for call in turn.tool_calls)

    @property
    def sampled_tokens(self) -> int:
        """Number of tokens that the policy sampled in all turns."""
        return sum(turn.completion_tokens for turn in self.turns)


@dataclass(frozen=True, slots=True)
class Score:
    """A score given by a model, with what is needed to audit it later."""

    value: float
    model: str = ""
    """The model's name in its API."""
    answer: str = ""
    """What the model said; the record keeps only the end of a long text."""


ScoreFunction = Callable[[RewardInput], float | Score | Awaitable[float | Score]]
"""A reward term: scores a graded episode, sync or async."""


@runtime_checkable
class ServedTerm(Protocol):
    """A reward term that needs a service, such as a model as judge."""

    async def check(self) -> None:
        """Raise UnreachableError when the service does not respond. Called before any episode."""
        ...

    async def aclose(self) -> None:
        """Close connections. No other method is called afterwards."""
        ...


REWARD_TERMS: ExtensionPoint[ScoreFunction] = ExtensionPoint(
    "reward term",
    group="swe_rollout.reward_terms",
    accepts=callable,
    expected="a function that takes a RewardInput and returns a number",
    builtin={
        "resolved": "swe_rollout.grading.rewards:resolved",
        "reward_file": "swe_rollout.grading.reward_file:score",
        "fraction": "swe_rollout.grading.reward_terms:Fraction",
        "length": "swe_rollout.grading.reward_terms:Length",
        "turns": "swe_rollout.grading.reward_terms:Turns",
        "format": "swe_rollout.grading.reward_terms:Format",
        "judge": "swe_rollout.grading.judge:Judge",
    },
    one_argument=True,
)


def resolved(given: RewardInput) -> float:
    """Score 1 when the tests resolve the task, else 0."""
    return 1.0 if given.verdict.resolved else 0.0


@dataclass(frozen=True, slots=True)
class NamedTerm:
    """A reward term, the name under which it was requested, and its weight."""

    name: str
    weight: float
    function: ScoreFunction

    @classmethod
    def load(cls, use: RewardUse) -> NamedTerm:
        """Load the term that a spec names. Raises ExtensionError, which lists what exists."""
        return cls(use.use, use.weight, REWARD_TERMS.load(use.use, use.with_))

    async def score(self, given: RewardInput) -> RewardTerm:
        """Score an episode. Raises ExtensionFailedError or GraderError when the term breaks."""
        with caught(GraderError, f"the reward term {self.name}", fix=_FIX, by=self.function):
            called = self.function(given)
            returned = await called if isawaitable(called) else called
            score = returned if isinstance(returned, Score) else Score(_number(returned))
            return RewardTerm(
                self.name,
                _number(score.value),
                self.weight,
                model=str(score.model)[:_MODEL_CHARS],
                answer=str(score.answer)[-_ANSWER_CHARS:],
            )


class Rewards:
    """The terms of a job's reward."""

    def __init__(self, terms: Sequence[RewardUse] = (RewardUse(use="resolved"),)) -> None:
        """Raises ExtensionError when a term can't be made."""
        self._terms = tuple(NamedTerm.load(use) for use in terms)

    async def check(self) -> None:
        """Raise UnreachableError when a service that a term needs does not respond."""
        for term in self._served():
            with caught(GraderError, "the check of a reward term's service", by=term):
                await term.check()

    async def aclose(self) -> None:
        """Close whatever the terms have opened."""
        for term in self._served():
            await term.aclose()

    def _served(self) -> list[ServedTerm]:
        functions: list[object] = [term.function for term in self._terms]
        return [each for each in functions if isinstance(each, ServedTerm)]

    async def score(self, given: RewardInput) -> Reward:
        """Score an episode by every term. Raises GraderError when one breaks.

        A verdict that was tampered with earns 0, whatever the terms say.
        """
        if given.verdict.status is VerdictStatus.TAMPERED:
            return Reward(tuple(RewardTerm(term.name, 0.0, term.weight) for term in self._terms))
        reward = Reward(tuple([await term.score(given) for term in self._terms]))
        if not math.isfinite(reward.value):
            names = ", ".join(term.name for term in reward.terms)
            raise GraderError(
                f"the reward terms {names} failed", why="their sum is not finite", fix=_FIX
            )
        return reward


def _number(value: object) -> float:
    number = float(value) if isinstance(value, SupportsFloat) else None
    if number is None or not math.isfinite(number):
        raise ValueError(f"expected a finite number; found {value!r:.80}")
    return number
