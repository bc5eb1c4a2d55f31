"""A snapshot of a job's progress: everything a live view shows, wherever the job runs.

Values unknown to a source are None or empty, and are not shown: nothing is guessed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from swe_rollout.types.durations import RecentDurations

COMMITTING, AWAITING_CACHE = "committing", "awaiting KV cache"
"""Phases that few jobs know: a slow store, and an engine without room for more contexts."""
TURN_EDGES_S = (0.5, 1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True, slots=True)
class Count:
    """The number of items of one kind."""

    name: str
    count: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """Episodes that ended the same way."""

    name: str
    episodes: int
    mean_reward: float | None = None
    """The mean over the graded episodes."""
    latest: str = ""
    """The last episode with this outcome, and how it ended."""


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
        """Freeze the measured durations."""
        recent = durations.recent()
        return cls(
            recent.quantile(0.5),
            recent.quantile(0.95),
            durations.total_s,
            recent.histogram(TURN_EDGES_S),
        )


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of samples: how many are complete, and how many give a training signal."""

    total: int | None
    complete: int
    with_signal: int
    """Complete groups whose rewards are not all equal."""


@dataclass(frozen=True, slots=True)
class Records:
    """Values found only in the records of episodes."""

    reward_bins: tuple[int, ...]
    """Graded episodes by reward, in equal bins from 0 to 1; outliers are in the outer bins."""
    groups: Groups | None
    """None if the size of a group is unknown."""
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
    """Facts for the header, such as the state and the policy."""
    elapsed_s: float
    eta_s: float | None
    total: int
    """Planned episodes."""
    committed: int
    phases: tuple[Count, ...]
    """Uncommitted episodes by phase."""
    failed: int
    """Episodes committed with a failure, which was not the policy's."""
    retries: int
    resolved: int
    graded: int
    mean_reward: float | None
    episodes_per_min: float | None
    verdicts: tuple[Count, ...]
    failures: tuple[Count, ...]
    """Failed episodes by owner, or by type where the source counts types."""
    outcomes: tuple[Outcome, ...]
    """Outcomes, the most frequent first."""
    records: Records | None
    """None if the records are not read."""
    problem: str | None = None
    """What blocks the job; empty if nothing does, None if unknown."""
    idle_s: float | None = None
    """Seconds since the last commit, if the job runs in another process."""
