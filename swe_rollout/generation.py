"""Generation: what an engine reports of one call."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

# msgspec reads the annotations of these classes at run time.
from swe_rollout.tokens.replay import ReplayRows  # noqa: TC001


class FinishReason(StrEnum):
    """Why one generation ended, in SGLang's terms."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class WeightSpan:
    """The weight version that sampled output tokens `[start, end)` of a generation."""

    version: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Generation:
    """The output of one engine call, as the engine reported it."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason
    prompt_tokens: int
    cached_tokens: int = 0
    weight_versions: tuple[WeightSpan, ...] = ()
    replay: ReplayRows | None = None
    """Replay data, if the job records any."""
