"""The limits of an episode, and how a job handles failures.

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
    """How to handle a turn that used up `maxNewTokens`. Its tool calls are never run."""

    END = "end"
    """The turn ends the episode (`token_limit`)."""
    ANSWER = "answer"
    """The harness closes the turn and responds with an error; the episode continues."""


class Limits(Model):
    """Limits of one episode. Reaching one ends it with a stop reason, not with an error."""

    turns: Annotated[int, Field(ge=1, le=100_000)] = 50
    """Generations per episode."""
    context_tokens: Annotated[int, Field(ge=_LEAST_CONTEXT, le=2**24)] = 32768
    """Limit for prompt and completions together. If the first prompt leaves no room, the task
    fails."""
    max_new_tokens: Annotated[int, Field(ge=1, le=2**20)] = 4096
    """Limit for the tokens of one generation."""
    cut_turns: CutTurns = CutTurns.END
    """A generation that reaches `maxNewTokens` ends the episode (`end`), or is closed and gets an
    error as its result, and the episode continues (`answer`). Its tool calls are not run."""
    episode_seconds: Seconds = 1800.0
    """Limit for the time from the start of the first turn to the end of the last."""
    tool_seconds: Seconds = 120.0
    """Limit for one tool call."""
    tool_output_bytes: Annotated[int, Field(ge=256, le=2**24)] = 16384
    """Limit for one tool result; the middle of a longer one is cut out and marked."""
    format_errors: Annotated[int, Field(ge=1, le=100_000)] = 3
    """Limit for consecutive turns whose calls all failed to parse."""
    repeated_turns: Annotated[int, Field(ge=2, le=100_000)] | None = None
    """Limit for consecutive turns with identical calls; unlimited by default."""
    compact_at: Annotated[float, Field(gt=0, le=2**24)] | None = unset()
    """Replace a longer log with the policy's own summary, in a new branch. Below 1, this is a share
    of `contextTokens`, otherwise a number of tokens; never by default."""

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
    """When to resume an episode after its process died or its sandbox was lost."""

    EXACT = "exact"
    """Resume if the sandbox can be rebuilt exactly."""
    BEST = "best"
    """Resume even without processes that commands had left running and files not saved."""
    NEVER = "never"
    """Start the episode over, and write no journal."""


class RetrySpec(Model):
    """Retries after failures that the policy did not cause."""

    attempts: Annotated[int, Field(ge=1, le=100)] = 3
    """Attempts at one episode in total; after the last, the episode is recorded as masked."""
    backoff_seconds: Annotated[float, Field(gt=0, le=3600)] = 2.0
    """The pause before the second attempt; doubled for each further one."""
    refills: Annotated[int, Field(ge=0, le=100)] = 2
    """How often a sample that failed for good is replaced by another one of its task, so that the
    group stays whole. A failure that would come again is not. Fixed for a job in a store."""
    resume: Annotated[Resume, Field(exclude_if=lambda resume: resume is Resume.EXACT)] = (
        Resume.EXACT
    )
    """When an episode resumes from its last durable turn after a crash: with `exact`, if its
    sandbox still runs or can be rebuilt exactly; with `best`, even without processes that its
    commands left running, which the record names; with `never`, it starts over and no journal is
    written."""


class FailureBudget(Model):
    """When to stop a job whose infrastructure fails."""

    max_masked_fraction: Annotated[float, Field(ge=0, le=1)] = 0.2
    """The share of the job's committed episodes, of all workers and runs, that may be masked. Above
    it, the job fails when one more is masked; 1 means never. Until the end, fewer than ten episodes
    count as ten; at the end the share alone decides. Lost machines mask few episodes for good;
    broken services, and policies that destroy their own sandboxes, mask most."""

    def is_spent(self, masked: int, finished: int, *, at_least: int = BUDGET_FLOOR) -> bool:
        """Whether too many of the finished episodes are masked.

        Fewer than `at_least` finished ones count as that many.
        """
        return masked > self.max_masked_fraction * max(finished, at_least)
