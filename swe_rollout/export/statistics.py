"""Compute statistics of a job's records: turns, calls, tokens, rewards and times.

Memory grows by a few numbers per episode, whatever a policy writes.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil, sqrt

import msgspec

from swe_rollout.spec.outcomes import OutcomeCounts
from swe_rollout.types.durations import DurationHistogram
from swe_rollout.types.failure_groups import FailureGroups
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.turn import CallStatus, ToolCall, Turn

NO_TOOL = "(no such tool)"
"""Replaces every name that no call with status `ok` had."""
_MOST_NAMES = 1000
"""How many names of calls that did not run are counted; a policy may invent any number."""


@dataclass(slots=True)
class Distribution:
    """The values of one quantity, one per episode or turn."""

    values: array[float] = field(default_factory=lambda: array("d"))

    def add(self, value: float) -> None:
        """Add a value."""
        self.values.append(value)

    @property
    def total(self) -> float:
        """The sum of the values."""
        return sum(self.values)

    @property
    def mean(self) -> float | None:
        """The mean; None without values."""
        return self.total / len(self.values) if self.values else None

    @property
    def deviation(self) -> float | None:
        """The population standard deviation; None without values."""
        mean = self.mean
        if mean is None:
            return None
        return sqrt(sum((value - mean) ** 2 for value in self.values) / len(self.values))

    def quantile(self, share: float) -> float | None:
        """Return the smallest value that at least this share of the values does not exceed."""
        if not self.values:
            return None
        ordered = sorted(self.values)
        return ordered[max(0, ceil(share * len(ordered)) - 1)]

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        return {
            "count": len(self.values),
            "total": self.total,
            "mean": self.mean,
            "std": self.deviation,
            "min": self.quantile(0.0),
            "p50": self.quantile(0.5),
            "p95": self.quantile(0.95),
            "max": self.quantile(1.0),
        }


@dataclass(slots=True)
class ToolStatistics:
    """The calls of one tool."""

    statuses: Counter[str] = field(default_factory=Counter)
    """Number of attempts by parse status."""
    failed: int = 0
    """Number of calls that ran and whose command ended with a non-zero exit code."""
    timed_out: int = 0
    truncated: int = 0
    """Number of calls whose result was truncated."""
    seconds: float = 0.0
    longest_s: float = 0.0

    @property
    def attempts(self) -> int:
        """Number of attempts, whatever their status."""
        return self.statuses.total()

    def merge(self, other: ToolStatistics) -> None:
        """Add the calls that another object has counted."""
        self.statuses.update(other.statuses)
        self.failed += other.failed
        self.timed_out += other.timed_out
        self.truncated += other.truncated
        self.seconds += other.seconds
        self.longest_s = max(self.longest_s, other.longest_s)

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        plain = msgspec.to_builtins(self)
        return {"attempts": self.attempts, **plain, "statuses": dict(sorted(self.statuses.items()))}


_QUANTITIES: dict[str, Callable[[Trajectory], float]] = {
    "turns": lambda t: len(t.turns),
    "sampled_tokens": lambda t: sum(turn.completion_tokens for turn in t.turns),
    "tokens": lambda t: t.token_count,
    "tool_calls": lambda t: sum(len(turn.tool_calls) for turn in t.turns),
    "patch_bytes": lambda t: len(t.patch.encode(errors="replace")),
    "start_s": lambda t: t.timing.start_s,
    "engine_s": lambda t: t.timing.engine_s,
    "tools_s": lambda t: t.timing.tools_s,
    "grade_s": lambda t: t.timing.grade_s,
    "total_s": lambda t: t.timing.total_s,
}


class JobStatistics:
    """Counts episodes as they arrive."""

    def __init__(self) -> None:
        self.outcomes = OutcomeCounts()
        self.verdicts: Counter[str] = Counter()
        self.finish_reasons: Counter[str] = Counter()
        self.episodes = {name: Distribution() for name in _QUANTITIES}
        """One value per episode for each quantity: counts, bytes of UTF-8, seconds."""
        self.rewards = Distribution()
        """The rewards of graded episodes that are not masked."""
        self.cached_tokens = 0
        self.prompt_tokens = 0
        """Prompt tokens of all requests; the request of a turn includes all earlier turns."""
        self.turns = {"engine_s": DurationHistogram(), "tools_s": DurationHistogram()}
        """Seconds per turn in the engine and in tools; quantiles are accurate to 4 %."""
        self.owners: Counter[str] = Counter()
        """Number of failed episodes by the part that failed."""
        self.failure_groups = FailureGroups()
        self._rewards_of: dict[str, tuple[float, float]] = {}
        self._tools: dict[str, ToolStatistics] = {}
        self._ran: set[str] = set()

    def add(self, trajectory: Trajectory) -> None:
        """Count an episode."""
        self.outcomes.add(trajectory.outcome)
        if trajectory.verdict is not None and not trajectory.masked:
            self.verdicts[trajectory.verdict.status] += 1
        if trajectory.reward is not None and not trajectory.masked:
            self.rewards.add(trajectory.reward.value)
            instance, value = trajectory.episode.instance, trajectory.reward.value
            least, most = self._rewards_of.get(instance, (value, value))
            self._rewards_of[instance] = min(least, value), max(most, value)
        if trajectory.failure is not None:
            self.owners[trajectory.failure.boundary.value] += 1
            self.failure_groups.add(trajectory.episode, trajectory.failure)
        for turn in trajectory.turns:
            self._turn(turn)
        for name, value_of in _QUANTITIES.items():
            self.episodes[name].add(value_of(trajectory))

    @property
    def groups(self) -> int:
        """Number of tasks with a graded sample."""
        return len(self._rewards_of)

    @property
    def groups_with_signal(self) -> int:
        """Number of tasks whose samples' rewards differ; others change no weight in training."""
        return sum(most > least for least, most in self._rewards_of.values())

    @property
    def cached_share(self) -> float | None:
        """Share of prompt tokens found in the engine's prefix cache; None without tokens."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else None

    @property
    def tools(self) -> dict[str, ToolStatistics]:
        """The calls by tool, the most used first; calls of unknown tools are counted together."""
        found: dict[str, ToolStatistics] = {}
        for name, each in self._tools.items():
            shown = name if name in self._ran else NO_TOOL
            found.setdefault(shown, ToolStatistics()).merge(each)
        return dict(sorted(found.items(), key=lambda item: (-item[1].attempts, item[0])))

    def to_dict(self) -> dict[str, object]:
        """Return everything as plain values."""
        outcomes = self.outcomes
        return {
            "episodes": outcomes.committed,
            "resolved": outcomes.resolved,
            "unresolved": outcomes.unresolved,
            "tampered": outcomes.tampered,
            "unproven": outcomes.unproven,
            "masked": outcomes.masked,
            "stop_reasons": dict(sorted(outcomes.stop_reasons.items())),
            "failures": dict(sorted(outcomes.failures.items())),
            "failure_owners": dict(sorted(self.owners.items())),
            "failure_groups": msgspec.to_builtins(self.failure_groups.ranked()),
            "groups": {"graded": self.groups, "with_signal": self.groups_with_signal},
            "verdicts": dict(sorted(self.verdicts.items())),
            "finish_reasons": dict(sorted(self.finish_reasons.items())),
            "reward": self.rewards.to_dict(),
            "per_episode": {name: each.to_dict() for name, each in self.episodes.items()},
            "per_turn": {name: each.to_dict() for name, each in self.turns.items()},
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "cached_share": self.cached_share,
            "tools": {name: each.to_dict() for name, each in self.tools.items()},
        }

    def _turn(self, turn: Turn) -> None:
        self.finish_reasons[turn.finish_reason] += 1
        self.prompt_tokens += turn.request.length
        self.cached_tokens += turn.cached_tokens
        self.turns["engine_s"].add(turn.engine_s)
        self.turns["tools_s"].add(turn.tools_s)
        for position, call in enumerate(turn.tool_calls):
            tool = self._tool(call)
            tool.statuses[call.status] += 1
            if position < len(turn.observations):
                seen = turn.observations[position]
                tool.failed += bool(seen.exit_code)
                tool.timed_out += seen.timed_out
                tool.truncated += seen.truncated
                tool.seconds += seen.duration_s
                tool.longest_s = max(tool.longest_s, seen.duration_s)

    def _tool(self, call: ToolCall) -> ToolStatistics:
        name = call.name
        if call.status is CallStatus.OK:
            self._ran.add(name)
        elif name not in self._tools and len(self._tools) >= _MOST_NAMES:
            name = NO_TOOL
        return self._tools.setdefault(name, ToolStatistics())
