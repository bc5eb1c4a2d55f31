"""Count the progress of a job as it is reported, in memory that does not grow with it.

`LiveProgress` subscribes to the events of the job; displays show its `snapshot`.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from swe_rollout.events import Phase
from swe_rollout.live.snapshot import (
    AWAITING_CACHE,
    COMMITTING,
    Count,
    Durations,
    Groups,
    Outcome,
    Records,
    Snapshot,
)
from swe_rollout.observer import Observer
from swe_rollout.spec.outcomes import OutcomeCounts
from swe_rollout.types.durations import RateMeter, RecentDurations
from swe_rollout.types.episode import EpisodeId, Failure
from swe_rollout.types.failure_groups import FailureGroups
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.turn import Turn

REWARD_BINS = 10
_LATEST_CHARS = 300
_PHASE_NAMES = {
    Phase.START: "starting",
    Phase.AGENT: "running",
    Phase.GRADE: "grading",
    Phase.COMMIT: COMMITTING,
}


@dataclass(frozen=True, slots=True)
class LiveTitle:
    """The parts of a view that do not change while a job runs."""

    job: str
    about: tuple[str, ...] = ()
    """Facts for the header, such as the policy."""
    group_size: Callable[[str], int] | None = None
    """Returns the number of samples of an instance; None if unknown."""
    groups: int | None = None
    """Number of groups, if known before they start."""


@dataclass(slots=True)
class _OutcomeTally:
    """Episodes that ended the same way."""

    episodes: int = 0
    graded: int = 0
    reward_sum: float = 0.0
    latest: str = ""


@dataclass(slots=True)
class _OpenGroup:
    """The samples of one instance, while some are missing."""

    ended: int = 0
    graded: int = 0
    least: float = float("inf")
    most: float = float("-inf")


class LiveProgress(Observer):
    """Progress of one job.

    Outcomes, rewards and groups cover all its episodes; speed and running episodes cover this run.
    Memory is bounded by the running episodes and the started groups.
    """

    def __init__(
        self, title: LiveTitle | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.title = title or LiveTitle("")
        self.planned_episodes = 0
        self.retries = 0
        self.counts = OutcomeCounts()
        self.running: dict[EpisodeId, Phase] = {}
        self.awaiting_cache = 0
        """Running episodes that wait for room in the engine's KV cache."""
        self._clock = clock
        self._started_s = clock()
        self._episodes = RateMeter(self._started_s, window_s=900.0)
        self._turns = RateMeter(self._started_s)
        self._tokens = RateMeter(self._started_s)
        self._has_ended = False
        self._turn_s = RecentDurations()
        self._engine_s = RecentDurations()
        self._tools_s = RecentDurations()
        self._prompt_tokens = 0
        self._cached_tokens = 0
        self._sampled_tokens = 0
        self._reward_bins = [0] * REWARD_BINS
        self._outcomes: dict[str, _OutcomeTally] = {}
        self._verdicts: Counter[str] = Counter()
        self._owners: Counter[str] = Counter()
        self.failure_groups = FailureGroups()
        """What failed in newly committed episodes."""
        self._open: dict[str, _OpenGroup] = {}
        self._complete = 0
        self._with_signal = 0

    def planned(self, episodes: int, committed: int) -> None:
        """Record the number of episodes; committed ones are counted one by one."""
        del committed
        self.planned_episodes = episodes

    def replaced(self, failed: EpisodeId, by: EpisodeId) -> None:
        """Count one more episode: the group of a failed one stays open for it."""
        del by
        self.planned_episodes += 1
        if self.title.group_size is not None:
            self._open.setdefault(failed.instance, _OpenGroup()).ended -= 1

    def earlier(self, trajectory: Trajectory) -> None:
        """Count an episode of an earlier run, ignoring its speed."""
        self._count(trajectory)

    def phase(self, episode: EpisodeId, phase: Phase) -> None:
        """Record the phase of a running episode."""
        self.running[episode] = phase

    def turn(self, episode: EpisodeId, turn: Turn) -> None:
        """Count a turn."""
        self.running.setdefault(episode, Phase.AGENT)
        self.count_turn(turn)

    def count_turn(self, turn: Turn, *, is_new: bool = True) -> None:
        """Count a turn, even of an ended episode; unless `is_new`, ignore its speed."""
        if is_new:
            now_s = self._clock()
            self._turns.add(now_s)
            self._tokens.add(now_s, turn.completion_tokens)
        self._turn_s.add(turn.engine_s + turn.tools_s)
        self._engine_s.add(turn.engine_s)
        self._tools_s.add(turn.tools_s)
        self._prompt_tokens += turn.request.length
        self._cached_tokens += turn.cached_tokens
        self._sampled_tokens += turn.completion_tokens

    def retried(self, episode: EpisodeId, failure: Failure, attempt: int) -> None:
        """Count the retry; the episode is not running until its next attempt."""
        del failure, attempt
        self.retries += 1
        self.running.pop(episode, None)

    def cache_awaited(self, starting: int, turns: int, held_tokens: int, cache_tokens: int) -> None:
        """Record how many running episodes wait for room in the engine's KV cache."""
        del held_tokens, cache_tokens
        self.awaiting_cache = starting + turns

    def done(self, trajectory: Trajectory) -> None:
        """Count a newly committed episode."""
        self.running.pop(trajectory.episode, None)
        self._has_ended = True
        self._episodes.add(self._clock())
        self._count(trajectory)

    def _count(self, trajectory: Trajectory) -> None:
        self.counts.add(trajectory.outcome)
        tally = self._outcomes.setdefault(outcome_name(trajectory), _OutcomeTally())
        tally.episodes += 1
        tally.latest = _describe(trajectory)
        if trajectory.verdict is not None and not trajectory.masked:
            self._verdicts[trajectory.verdict.status.value] += 1
        if trajectory.failure is not None:
            self._owners[trajectory.failure.boundary.value] += 1
            self.failure_groups.add(trajectory.episode, trajectory.failure)
        reward = None if trajectory.reward is None else trajectory.reward.value
        if reward is not None:
            tally.graded += 1
            tally.reward_sum += reward
            # A reward from an extension may be NaN, which belongs in no bin.
            if reward == reward:  # noqa: PLR0124
                share = min(max(reward, 0.0), 1.0)
                self._reward_bins[min(int(share * REWARD_BINS), REWARD_BINS - 1)] += 1
        self._count_in_group(trajectory.episode.instance, reward)

    def _count_in_group(self, instance: str, reward: float | None) -> None:
        if self.title.group_size is None:
            return
        group = self._open.setdefault(instance, _OpenGroup())
        group.ended += 1
        if reward is not None:
            group.graded += 1
            group.least = min(group.least, reward)
            group.most = max(group.most, reward)
        if group.ended >= self.title.group_size(instance):
            del self._open[instance]
            self._complete += 1
            self._with_signal += group.graded > 1 and group.most > group.least

    @property
    def committed(self) -> int:
        """Number of episodes committed by this or an earlier run."""
        return self.counts.committed

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start of the run."""
        return self._clock() - self._started_s

    @property
    def per_minute(self) -> float | None:
        """Recent episodes per minute; None before the first."""
        return 60 * self._episodes.per_s(self._clock()) if self._has_ended else None

    def snapshot(self) -> Snapshot:
        """Return the current state as an immutable value."""
        counts, rate = self.counts, self.per_minute
        left = max(self.planned_episodes - counts.committed, 0)
        return Snapshot(
            job=self.title.job,
            about=self.title.about,
            elapsed_s=self.elapsed_s,
            eta_s=60 * left / rate if rate else None,
            total=self.planned_episodes,
            committed=counts.committed,
            phases=self._phases(left),
            failed=counts.masked,
            retries=self.retries,
            resolved=counts.resolved,
            graded=counts.graded,
            mean_reward=counts.mean_reward,
            episodes_per_min=rate,
            verdicts=_ranked(self._verdicts),
            failures=_ranked(self._owners),
            outcomes=self._ranked_outcomes(),
            records=self._records(),
        )

    def _phases(self, left: int) -> tuple[Count, ...]:
        found = Counter(self.running.values())
        phases = [Count("queued", max(left - len(self.running), 0))]
        phases += [Count(name, found[phase]) for phase, name in _PHASE_NAMES.items()]
        return (*phases, Count(AWAITING_CACHE, self.awaiting_cache))

    def _ranked_outcomes(self) -> tuple[Outcome, ...]:
        ranked = sorted(self._outcomes.items(), key=lambda item: -item[1].episodes)
        return tuple(
            Outcome(
                name,
                each.episodes,
                each.reward_sum / each.graded if each.graded else None,
                each.latest,
            )
            for name, each in ranked
        )

    def _records(self) -> Records:
        now_s = self._clock()
        has_turns = self._sampled_tokens > 0 or self._turn_s.total_s > 0
        groups = None
        if self.title.group_size is not None:
            groups = Groups(self.title.groups, self._complete, self._with_signal)
        return Records(
            reward_bins=tuple(self._reward_bins),
            groups=groups,
            turns=Durations.of(self._turn_s),
            engine=Durations.of(self._engine_s),
            tools=Durations.of(self._tools_s),
            cache_hit=self._cached_tokens / self._prompt_tokens if self._prompt_tokens else None,
            sampled_tokens=self._sampled_tokens,
            turns_per_s=self._turns.per_s(now_s) if has_turns else None,
            tokens_per_s=self._tokens.per_s(now_s) if has_turns else None,
        )


def outcome_name(trajectory: Trajectory) -> str:
    """How an episode ended, as one word for a table."""
    if trajectory.failure is not None:
        return f"{trajectory.failure.boundary}_failed"
    return "ended" if trajectory.stop_reason is None else str(trajectory.stop_reason)


def _ranked(counts: Counter[str]) -> tuple[Count, ...]:
    return tuple(Count(name, count) for name, count in counts.most_common())


def _describe(trajectory: Trajectory) -> str:
    episode = trajectory.episode
    address = f"{episode.instance}/{episode.sample}"
    if trajectory.failure is not None:
        return f"{address} · {trajectory.failure.message[:_LATEST_CHARS]}"
    verdict = trajectory.verdict
    return f"{address} · {verdict.status}" if verdict else address


@asynccontextmanager
async def every(seconds: float, act: Callable[[], None]) -> AsyncIterator[None]:
    """Call `act` periodically while the block runs."""

    async def tick() -> None:
        while True:
            await asyncio.sleep(seconds)
            act()

    ticker = asyncio.create_task(tick())
    try:
        yield
    finally:
        ticker.cancel()
        with suppress(asyncio.CancelledError):
            await ticker
