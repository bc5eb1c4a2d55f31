"""Compare two jobs: their settings, the result of each task, and whether it may be chance.

`swe-rollout diff` prints the comparison, and the viewer shows it. Memory grows by a few numbers per
task.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

import msgspec

from swe_rollout.export.paired import PairedDifference, paired
from swe_rollout.spec.outcomes import OutcomeCounts
from swe_rollout.store.plan import settings
from swe_rollout.types.trajectory import Trajectory

QUANTITIES: Final = ("reward", "resolved", "turns", "sampled_tokens", "seconds", "failed")
"""Means over episodes; `resolved` and `failed` are shares. Failed episodes count in `failed` only,
and ungraded ones not in `reward`."""


class Flip(StrEnum):
    """How a task changed, by the number of its resolved samples."""

    SOLVED_NOW = "solved now"
    """A sample resolves it now, and none did before."""
    NOT_SOLVED_NOW = "no longer solved"
    MORE_OFTEN = "solved more often"
    LESS_OFTEN = "solved less often"
    SAME = "same"
    ANOTHER_TASK = "another task of that name"
    ONLY_BEFORE = "only in the first"
    ONLY_AFTER = "only in the second"
    NOT_GRADED = "not graded in both"


@dataclass(slots=True)
class TaskSide:
    """The results of one task's samples in one job."""

    samples: int = 0
    graded: int = 0
    resolved: int = 0
    _counts: array[int] = field(default_factory=lambda: array("q", [0] * len(QUANTITIES)))
    _totals: array[float] = field(default_factory=lambda: array("d", [0.0] * len(QUANTITIES)))

    def add(self, trajectory: Trajectory) -> None:
        """Count a sample."""
        self.samples += 1
        self._add("failed", float(trajectory.masked))
        if trajectory.masked:
            return
        self._add("turns", len(trajectory.turns))
        self._add("sampled_tokens", sum(turn.completion_tokens for turn in trajectory.turns))
        self._add("seconds", trajectory.timing.total_s)
        if trajectory.verdict is not None:
            self.graded += 1
            self.resolved += trajectory.resolved
            self._add("resolved", float(trajectory.resolved))
        if trajectory.reward is not None:
            self._add("reward", trajectory.reward.value)

    def mean(self, quantity: str) -> float | None:
        """Return the mean of a quantity over the samples that have one."""
        at = QUANTITIES.index(quantity)
        return self._totals[at] / self._counts[at] if self._counts[at] else None

    def _add(self, quantity: str, value: float) -> None:
        at = QUANTITIES.index(quantity)
        self._counts[at] += 1
        self._totals[at] += value


class JobSide:
    """One of two jobs, counted as its records arrive."""

    def __init__(self, job: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Start with no records; `job` is the resolved job in the plan."""
        self.settings = settings(job)
        self.digests: dict[str, str] = {}
        """The digest of each task, which reveals a task that has changed."""
        self.outcomes = OutcomeCounts()
        self.owners: Counter[str] = Counter()
        self.tasks: dict[str, TaskSide] = {}
        self._means = TaskSide()

    def add(self, trajectory: Trajectory) -> None:
        """Count an episode."""
        self.outcomes.add(trajectory.outcome)
        if trajectory.failure is not None:
            self.owners[trajectory.failure.boundary.value] += 1
        instance = trajectory.episode.instance
        self.digests[instance] = trajectory.instance_digest
        self.tasks.setdefault(instance, TaskSide()).add(trajectory)
        self._means.add(trajectory)

    def mean(self, quantity: str) -> float | None:
        """Return the mean of a quantity over all episodes."""
        return self._means.mean(quantity)


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A setting that differs between the jobs."""

    path: str
    before: str | None
    """The value in the first job; None if it was not set."""
    after: str | None


@dataclass(frozen=True, slots=True)
class TaskNumbers:
    """The numbers of a task in one of the jobs."""

    samples: int
    graded: int
    resolved: int
    mean_reward: float | None


@dataclass(frozen=True, slots=True)
class TaskChange:
    """A task in both jobs."""

    instance: str
    flip: Flip
    before: TaskNumbers | None
    after: TaskNumbers | None
    change: float | None
    """The difference of the mean rewards."""


@dataclass(frozen=True, slots=True)
class QuantityChange:
    """The mean of a quantity in both jobs, and the difference over the tasks they share."""

    name: str
    before: float | None
    after: float | None
    paired: PairedDifference


@dataclass(frozen=True, slots=True)
class JobComparison:
    """Two jobs side by side."""

    settings: tuple[SettingChange, ...]
    quantities: tuple[QuantityChange, ...]
    tasks: tuple[TaskChange, ...]
    """All tasks, the most changed ones first."""
    stop_reasons: tuple[dict[str, int], dict[str, int]]
    failures: tuple[dict[str, int], dict[str, int]]
    """The number of failures by owner in each job."""

    @property
    def flips(self) -> dict[Flip, int]:
        """The number of tasks by how they changed."""
        found = Counter(each.flip for each in self.tasks)
        return {flip: found[flip] for flip in Flip if found[flip]}

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        record: dict[str, object] = msgspec.to_builtins(self)
        record["flips"] = {flip.value: count for flip, count in self.flips.items()}
        record["quantities"] = [
            {**msgspec.to_builtins(each), "verdict": each.paired.certainty.value}
            for each in self.quantities
        ]
        return record


def compare_jobs(before: JobSide, after: JobSide) -> JobComparison:
    """Compare two jobs, all of whose records have been counted."""
    names = sorted(before.tasks.keys() | after.tasks.keys())
    tasks = [_task(name, before, after) for name in names]
    tasks.sort(key=lambda each: (-abs(each.change or 0.0), each.flip is Flip.SAME, each.instance))
    comparable = [
        each.instance
        for each in tasks
        if each.before and each.after and each.flip is not Flip.ANOTHER_TASK
    ]
    paths = sorted(before.settings.keys() | after.settings.keys())
    sides = before.settings, after.settings
    return JobComparison(
        settings=tuple(
            SettingChange(path, *(side.get(path) for side in sides))
            for path in paths
            if sides[0].get(path) != sides[1].get(path)
        ),
        quantities=tuple(_quantity(each, before, after, comparable) for each in QUANTITIES),
        tasks=tuple(tasks),
        stop_reasons=(_plain(before.outcomes.stop_reasons), _plain(after.outcomes.stop_reasons)),
        failures=(_plain(before.owners), _plain(after.owners)),
    )


def _task(name: str, before: JobSide, after: JobSide) -> TaskChange:
    old, new = before.tasks.get(name), after.tasks.get(name)
    means = [None if side is None else side.mean("reward") for side in (old, new)]
    digests = before.digests.get(name), after.digests.get(name)
    is_another = all(digests) and digests[0] != digests[1]
    change = None
    if means[0] is not None and means[1] is not None and not is_another:
        change = means[1] - means[0]
    flip = Flip.ANOTHER_TASK if is_another and old and new else _flip(old, new)
    return TaskChange(name, flip, _numbers(old), _numbers(new), change)


def _flip(old: TaskSide | None, new: TaskSide | None) -> Flip:
    if old is None or new is None:
        return Flip.ONLY_AFTER if old is None else Flip.ONLY_BEFORE
    if not (old.graded and new.graded):
        return Flip.NOT_GRADED
    difference = new.resolved * old.graded - old.resolved * new.graded
    if difference == 0:
        return Flip.SAME
    if difference > 0:
        return Flip.MORE_OFTEN if old.resolved else Flip.SOLVED_NOW
    return Flip.LESS_OFTEN if new.resolved else Flip.NOT_SOLVED_NOW


def _numbers(side: TaskSide | None) -> TaskNumbers | None:
    if side is None:
        return None
    return TaskNumbers(side.samples, side.graded, side.resolved, side.mean("reward"))


def _quantity(name: str, before: JobSide, after: JobSide, tasks: list[str]) -> QuantityChange:
    pairs = [(before.tasks[task].mean(name), after.tasks[task].mean(name)) for task in tasks]
    both = [(old, new) for old, new in pairs if old is not None and new is not None]
    difference = paired([old for old, _ in both], [new for _, new in both])
    return QuantityChange(name, before.mean(name), after.mean(name), difference)


def _plain(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items()))
