"""A job on the cluster, as its status shows it, for live views in terminals and notebooks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from swe_rollout.launcher.job_result import summary_of
from swe_rollout.live.snapshot import AWAITING_CACHE, Count, Outcome, Snapshot
from swe_rollout.spec.status import ConditionType

if TYPE_CHECKING:
    from swe_rollout.cluster.job_objects import JobObject
    from swe_rollout.spec.status import Condition

_GOOD_WHEN_FALSE = (ConditionType.SUSPENDED, ConditionType.FAILED, ConditionType.COMPLETE)


@dataclass(slots=True)
class WatchedJob:
    """The latest state of a job, and its rate since watching started."""

    job: JobObject
    watched_since: float = field(default_factory=time.monotonic)
    committed_before: int | None = None

    def update(self, job: JobObject) -> None:
        """Replace the state with a newer one."""
        self.job = job
        if self.committed_before is None:
            self.committed_before = job.status.episodes.committed

    @property
    def per_minute(self) -> float | None:
        """Episodes committed per minute while watching; None before the first."""
        done = self.job.status.episodes.committed - (self.committed_before or 0)
        return 60 * done / max(time.monotonic() - self.watched_since, 1.0) if done > 0 else None

    @property
    def eta_s(self) -> float | None:
        """Estimated seconds to the end at this rate."""
        counts, rate = self.job.status.episodes, self.per_minute
        return None if rate is None else 60 * (counts.total - counts.committed) / rate

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start of the job."""
        started, ended = self.job.status.start_time, self.job.status.completion_time
        if started is None:
            return 0.0
        end = datetime.fromisoformat(ended) if ended else datetime.now(UTC)
        return max((end - datetime.fromisoformat(started)).total_seconds(), 0.0)


def unmet_conditions(job: JobObject) -> Iterator[Condition]:
    """Yield the conditions that currently keep the job from completing."""
    for condition in job.status.conditions:
        if condition.type in _GOOD_WHEN_FALSE:
            if condition.status == "True" and condition.type is not ConditionType.COMPLETE:
                yield condition
        elif condition.status == "False":
            yield condition


def count_outcomes(job: JobObject) -> list[tuple[str, int]]:
    """Count episodes by stop reason and failure, the most frequent first."""
    counts = [*job.status.stop_reasons.items(), *job.status.failures.items()]
    return sorted(counts, key=lambda each: -each[1])


def job_snapshot(watched: WatchedJob) -> Snapshot:
    """Return the snapshot from the job's status, which lacks turns, groups and single rewards."""
    job = watched.job
    counts, summary = job.status.episodes, summary_of(job)
    failures = (Count(*each) for each in job.status.failures.items())
    left = max(counts.total - counts.committed - counts.running, 0)
    verdicts = [Count("resolved", counts.resolved), Count("tampered", counts.tampered)]
    verdicts.append(Count("unresolved", counts.unresolved - counts.tampered))
    return Snapshot(
        job=f"rolloutjob/{job.name}",
        about=(job.status.state, job.status.policy),
        elapsed_s=watched.elapsed_s,
        eta_s=watched.eta_s,
        total=counts.total,
        committed=counts.committed,
        phases=(
            Count("queued", left),
            Count("running", counts.running - counts.grading),
            Count("grading", counts.grading),
            Count(AWAITING_CACHE, counts.awaiting_cache),
        ),
        failed=counts.masked,
        retries=0,
        resolved=counts.resolved,
        graded=counts.resolved + counts.unresolved,
        mean_reward=summary.mean_reward,
        episodes_per_min=watched.per_minute,
        verdicts=tuple(sorted((each for each in verdicts if each.count), key=_frequency)),
        failures=tuple(sorted(failures, key=_frequency)),
        outcomes=tuple(Outcome(name, episodes) for name, episodes in count_outcomes(job)),
        records=None,
        problem=" · ".join(f"{each.reason}: {each.message}" for each in unmet_conditions(job)),
    )


def _frequency(count: Count) -> tuple[int, str]:
    return -count.count, count.name
