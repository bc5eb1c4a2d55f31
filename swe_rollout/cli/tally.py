"""Tally: everything a view shows of a running job, kept in bounded memory. Draws nothing.

The live view and the plain lines read it; the worker feeds it through `Progress`.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from swe_rollout.progress import Phase

if TYPE_CHECKING:
    from swe_rollout.trajectory import EpisodeId, Failure, Trajectory, Turn

_LATENCIES_KEPT = 2000
_RATE_KEPT = 200
REWARD_BINS = 10


@dataclass(slots=True)
class Outcome:
    """Episodes that ended the same way."""

    episodes: int = 0
    graded: int = 0
    reward: float = 0.0
    latest: str = ""

    @property
    def mean_reward(self) -> float | None:
        """Of those that were graded."""
        return self.reward / self.graded if self.graded else None


@dataclass(slots=True)
class Group:
    """The samples of one instance, as far as they are graded."""

    graded: int = 0
    least: float = float("inf")
    most: float = float("-inf")

    @property
    def has_signal(self) -> bool:
        """Whether rewards differ, so that a group-relative advantage is not zero."""
        return self.graded > 1 and self.most > self.least


@dataclass(slots=True)
class Tally:
    """Counters of one run; implements `Progress`."""

    episodes: int = 0
    committed_before: int = 0
    finished: int = 0
    graded: int = 0
    resolved: int = 0
    masked: int = 0
    retries: int = 0
    reward: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    sampled_tokens: int = 0
    running: dict[EpisodeId, Phase] = field(default_factory=dict)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    reward_bins: list[int] = field(default_factory=lambda: [0] * REWARD_BINS)
    turn_s: deque[float] = field(default_factory=lambda: deque(maxlen=_LATENCIES_KEPT))
    finished_at: deque[float] = field(default_factory=lambda: deque(maxlen=_RATE_KEPT))
    started_at: float = field(default_factory=time.monotonic)

    def planned(self, episodes: int, committed: int) -> None:
        """Take the size of the job, and what an earlier run has done of it."""
        self.episodes = episodes
        self.committed_before = committed

    def phase(self, episode: EpisodeId, phase: Phase) -> None:
        """Move a running episode."""
        self.running[episode] = phase

    def turn(self, episode: EpisodeId, turn: Turn) -> None:
        """Count a turn's time and tokens."""
        self.running.setdefault(episode, Phase.AGENT)
        self.turn_s.append(turn.engine_s + turn.tools_s)
        self.prompt_tokens += turn.request.length
        self.cached_tokens += turn.cached_tokens
        self.sampled_tokens += turn.completion_tokens

    def retried(self, episode: EpisodeId, failure: Failure, attempt: int) -> None:
        """Count an attempt that failed; the episode waits for the next one."""
        del failure, attempt
        self.retries += 1
        self.running.pop(episode, None)

    def done(self, trajectory: Trajectory) -> None:
        """Count a committed trajectory."""
        self.running.pop(trajectory.episode, None)
        self.finished += 1
        self.finished_at.append(time.monotonic())
        self.resolved += trajectory.resolved
        self.masked += trajectory.masked
        outcome = self.outcomes.setdefault(outcome_name(trajectory), Outcome())
        outcome.episodes += 1
        outcome.latest = _latest(trajectory)
        if trajectory.reward is not None:
            self._count_reward(trajectory.reward.value, outcome, trajectory.episode.instance)

    def _count_reward(self, value: float, outcome: Outcome, instance: str) -> None:
        self.graded += 1
        self.reward += value
        outcome.graded += 1
        outcome.reward += value
        share = min(max(value, 0.0), 1.0)
        self.reward_bins[min(int(share * REWARD_BINS), REWARD_BINS - 1)] += 1
        group = self.groups.setdefault(instance, Group())
        group.graded += 1
        group.least = min(group.least, value)
        group.most = max(group.most, value)

    @property
    def done_episodes(self) -> int:
        """Committed, by this run or an earlier one."""
        return self.committed_before + self.finished

    @property
    def mean_reward(self) -> float | None:
        """Over the graded episodes of this run."""
        return self.reward / self.graded if self.graded else None

    @property
    def per_minute(self) -> float | None:
        """Episodes finished per minute lately; none before the first."""
        if not self.finished_at:
            return None
        full = len(self.finished_at) == _RATE_KEPT
        since = self.finished_at[0] if full else self.started_at
        return 60 * len(self.finished_at) / max(time.monotonic() - since, 1e-3)

    @property
    def eta_s(self) -> float | None:
        """Seconds to the end at the present rate."""
        rate = self.per_minute
        return None if not rate else 60 * (self.episodes - self.done_episodes) / rate

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self.started_at

    @property
    def cache_hit(self) -> float | None:
        """Share of prompt tokens that the engine's prefix cache had."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else None

    def phases(self) -> Counter[Phase]:
        """Running episodes by phase."""
        return Counter(self.running.values())

    def turn_percentile(self, percent: float) -> float | None:
        """Seconds that `percent` of the recent turns took at most."""
        if not self.turn_s:
            return None
        ordered = sorted(self.turn_s)
        return ordered[min(int(len(ordered) * percent / 100), len(ordered) - 1)]


def outcome_name(trajectory: Trajectory) -> str:
    """How an episode ended, in one word for a table."""
    if trajectory.failure is not None:
        return f"{trajectory.failure.boundary}_failed"
    return "ended" if trajectory.stop_reason is None else str(trajectory.stop_reason)


def _latest(trajectory: Trajectory) -> str:
    episode = trajectory.episode
    address = f"{episode.instance}/{episode.sample}"
    if trajectory.failure is not None:
        return f"{address} · {trajectory.failure.message}"
    verdict = trajectory.verdict
    return f"{address} · {verdict.status}" if verdict else address
