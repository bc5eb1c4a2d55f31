"""A snapshot of a job's progress: all that a live view shows, wherever the job runs.

What a source does not know is None or empty, and is not shown: nothing is guessed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from swe_rollout.types.durations import RecentDurations

TURN_EDGES_S = (0.5, 1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True, slots=True)
class Count:
    """How many there are of one kind."""

    name: str
    count: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """Episodes that ended the same way."""

    name: str
    episodes: int
    mean_reward: float | None = None
    """The mean over the episodes that were graded."""
    latest: str = ""
    """The episode that ended so last, and how."""


@dataclass(frozen=True, slots=True)
class Durations:
    """Recent durations, and the sum of all of them."""

    p50_s: float | None
    p95_s: float | None
    total_s: float
    histogram: tuple[int, ...]
    """Counts of the recent durations between `TURN_EDGES_S`."""

    @classmethod
    def of(cls, durations: RecentDurations) -> Self:
        """Freeze what was measured."""
        recent = durations.recent()
        return cls(
            recent.quantile(0.5),
            recent.quantile(0.95),
            durations.total_s,
            recent.histogram(TURN_EDGES_S),
        )


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of samples: how many are complete, and how many of those can teach something."""

    total: int | None
    complete: int
    with_signal: int
    """Complete groups whose rewards are not all equal."""


@dataclass(frozen=True, slots=True)
class Records:
    """What only the records of episodes tell."""

    reward_bins: tuple[int, ...]
    """Graded episodes by reward, from 0 to 1 in equal steps; those beyond are in the outer ones."""
    groups: Groups | None
    """None where nobody knows how many samples a group has."""
    turns: Durations
    engine: Durations
    tools: Durations
    cache_hit: float | None
    """Share of prompt tokens that the engine found in its prefix cache."""
    sampled_tokens: int
    turns_per_s: float | None
    tokens_per_s: float | None
    """Tokens sampled per second."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The progress of a job at one moment."""

    job: str
    about: tuple[str, ...]
    """Facts for the head, such as the state and the policy."""
    elapsed_s: float
    eta_s: float | None
    total: int
    """Episodes that are planned."""
    committed: int
    phases: tuple[Count, ...]
    """Episodes that are not committed, by phase."""
    failed: int
    """Committed with a failure: something else than the policy broke."""
    retries: int
    resolved: int
    graded: int
    mean_reward: float | None
    episodes_per_min: float | None
    verdicts: tuple[Count, ...]
    failures: tuple[Count, ...]
    """Failed episodes by owner, or by type where the source counts types."""
    outcomes: tuple[Outcome, ...]
    """The most frequent first."""
    records: Records | None
    """None where nobody reads the records."""
    problem: str | None = None
    """What keeps the job from going on; empty if nothing does, None if nobody knows."""
    idle_s: float | None = None
    """Seconds since the last commit, where the job runs in another process."""
