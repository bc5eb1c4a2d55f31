"""The limits of an episode. The string under a field is its documentation everywhere."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from swe_rollout.spec.bounds import Seconds
from swe_rollout.spec.model import Model

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
    compact_at: Annotated[
        Annotated[float, Field(gt=0, le=2**24)] | None,
        Field(exclude_if=lambda bound: bound is None),
    ] = None
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
