"""The limits of an episode, and what failures cost a job.

The string under a field is its documentation everywhere.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from swe_rollout.spec.bounds import BUDGET_FLOOR, Seconds
from swe_rollout.spec.model import Model, unset

_LEAST_CONTEXT: Final = 16
"""Tokens."""


class CutTurns(StrEnum):
    """How a turn that used up `maxNewTokens` is handled. Nothing in it is ever run."""

    END = "end"
    """It ends the episode (`token_limit`)."""
    ANSWER = "answer"
    """The harness closes it, answers it with an error, and the episode goes on."""


class Limits(Model):
    """Limits of one episode. Reaching one ends it with a stop reason, not with an error."""

    turns: Annotated[int, Field(ge=1, le=100_000)] = 50
    """Generations per episode."""
    context_tokens: Annotated[int, Field(ge=_LEAST_CONTEXT, le=2**24)] = 32768
    """Prompt and completions together. A task whose first prompt leaves no room is a failure of
    that task."""
    max_new_tokens: Annotated[int, Field(ge=1, le=2**20)] = 4096
    """Tokens of one generation."""
    cut_turns: CutTurns = CutTurns.END
    """A generation that reaches `maxNewTokens` ends the episode (`end`), or is closed and answered
    with an error, and the episode goes on (`answer`). Nothing in it is run."""
    episode_seconds: Seconds = 1800.0
    """From the first turn to the end of the last one."""
    tool_seconds: Seconds = 120.0
    """Limit for one tool call."""
    tool_output_bytes: Annotated[int, Field(ge=256, le=2**24)] = 16384
    """Limit for one tool result; the middle of a longer one is cut and marked."""
    format_errors: Annotated[int, Field(ge=1, le=100_000)] = 3
    """Consecutive turns whose calls all failed to parse."""
    repeated_turns: Annotated[int, Field(ge=2, le=100_000)] | None = None
    """Consecutive turns with identical calls; none: not checked."""
    compact_at: Annotated[float, Field(gt=0, le=2**24)] | None = unset()
    """A log longer than this is replaced by the policy's own summary, in a new branch: a share of
    `contextTokens` (below 1) or a number of tokens; none: never."""

    @property
    def compact_at_tokens(self) -> int | None:
        """`compact_at` in tokens."""
        if self.compact_at is None:
            return None
        if self.compact_at < 1:
            return int(self.compact_at * self.context_tokens)
        return int(self.compact_at)

    @model_validator(mode="after")
    def _compacts_in_time(self) -> Self:
        if self.compact_at is not None and 1 <= self.compact_at < _LEAST_CONTEXT:
            raise ValueError(f"compactAt is a share below 1, or at least {_LEAST_CONTEXT} tokens")
        if self.compact_at is not None and self.compact_at >= self.context_tokens:
            raise ValueError("compactAt must be below contextTokens, or no summary fits")
        return self


class Resume(StrEnum):
    """When an episode goes on where a process that died, or a sandbox that was lost, left it."""

    EXACT = "exact"
    """Where its sandbox can be rebuilt without a difference."""
    BEST = "best"
    """Also without processes that its commands had left running, and files that were not saved."""
    NEVER = "never"
    """It begins anew, and no journal is written."""


class RetrySpec(Model):
    """Retries after a failure that is not the policy's."""

    attempts: Annotated[int, Field(ge=1, le=100)] = 3
    """Tries of one episode in all; after the last, it is recorded as masked."""
    backoff_seconds: Annotated[float, Field(gt=0, le=3600)] = 2.0
    """Before the second try; doubled for each further one."""
    resume: Annotated[Resume, Field(exclude_if=lambda resume: resume is Resume.EXACT)] = (
        Resume.EXACT
    )
    """When an episode goes on at its last durable turn after a crash: `exact`, where its sandbox
    lives on or can be rebuilt as it was; `best`, also without processes that its commands had left
    running, which the record names; `never`: it begins anew, and no journal is written."""


class FailureBudget(Model):
    """When to stop a job whose infrastructure fails."""

    max_masked_fraction: Annotated[float, Field(ge=0, le=1)] = 0.2
    """Of the job's committed episodes, by whichever worker or earlier run, counted as ten while
    they are fewer, and at the end as they are; above it the job fails when one more is masked. 1:
    never. Lost machines mask few episodes for good; broken services, and policies that end their
    own sandboxes, most of them."""

    def is_spent(self, masked: int, finished: int, *, at_least: int = BUDGET_FLOOR) -> bool:
        """Whether so many masked episodes are too many of the finished ones.

        Fewer than `at_least` finished ones count as that many.
        """
        return masked > self.max_masked_fraction * max(finished, at_least)
