"""Count episodes by outcome, for workers, operator, store and live view alike."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class EpisodeOutcome:
    """How a committed episode ended."""

    resolved: bool
    masked: bool
    """Whether something other than the policy failed, so that no reward was earned."""
    reward: float | None
    """None if the grader did not run."""
    stop_reason: str | None
    failure: str | None
    """The failure's type, if any."""
    tampered: bool = False
    """Whether the tests passed only because the patch tampers with them."""
    unproven: bool = False
    """Whether it is resolved, by tests that a forgery could pass."""


@dataclass(slots=True)
class OutcomeCounts:
    """Committed episodes by outcome. Means exclude masked ones."""

    committed: int = 0
    resolved: int = 0
    masked: int = 0
    graded: int = 0
    reward_sum: float = 0.0
    tampered: int = 0
    unproven: int = 0
    stop_reasons: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: EpisodeOutcome) -> None:
        """Count one episode."""
        self.committed += 1
        self.resolved += outcome.resolved and not outcome.masked
        self.masked += outcome.masked
        self.tampered += outcome.tampered and not outcome.masked
        self.unproven += outcome.unproven and not outcome.masked
        if outcome.reward is not None:
            self.graded += 1
            self.reward_sum += outcome.reward
        if outcome.stop_reason is not None:
            self.stop_reasons[outcome.stop_reason] += 1
        if outcome.failure is not None:
            self.failures[outcome.failure] += 1

    def merge(self, other: OutcomeCounts) -> None:
        """Add the counts of other episodes."""
        self.committed += other.committed
        self.resolved += other.resolved
        self.masked += other.masked
        self.tampered += other.tampered
        self.unproven += other.unproven
        self.graded += other.graded
        self.reward_sum += other.reward_sum
        self.stop_reasons.update(other.stop_reasons)
        self.failures.update(other.failures)

    @property
    def unresolved(self) -> int:
        """The number of episodes that are neither resolved nor masked."""
        return self.committed - self.resolved - self.masked

    @property
    def mean_reward(self) -> float | None:
        """The mean over the graded episodes; None if there are none."""
        return self.reward_sum / self.graded if self.graded else None
