"""The tasks of a stored job, for work on its trajectories: replay, regrading, exports.

No engine is opened. The job comes from its plan; each record holds the digest of its task, so a
different task with the same name is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from swe_rollout.datasets.base import LoadedDataset, load
from swe_rollout.errors import TaskError, UsageError, gather_all
from swe_rollout.spec.dataset import Dataset
from swe_rollout.spec.job import RolloutJob
from swe_rollout.store.store import Store
from swe_rollout.types.instance import Instance
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.worker.extensions import import_extensions

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class StoredTasks:
    """A job as planned, and its tasks by id."""

    job: RolloutJob
    instances: Mapping[str, Instance]

    def task_of(self, trajectory: Trajectory) -> Instance:
        """Return the task of a trajectory. Raises TaskError if it is missing."""
        name = trajectory.episode.instance
        found = self.instances.get(name)
        if found is None:
            raise TaskError(
                f"the task {name} is not in the dataset",
                why=f"{len(self.instances)} other tasks are",
                fix="name the dataset that the job was run with: --dataset",
                retryable=False,
            )
        if trajectory.instance_digest and found.digest != trajectory.instance_digest:
            raise TaskError(
                f"the task {name} has changed since the episode",
                why=f"its digest was {trajectory.instance_digest}, and is {found.digest} now",
                fix="bring back the rows that the job was run with: --dataset",
                retryable=False,
            )
        return found


@dataclass(frozen=True, slots=True)
class OtherDataset:
    """A dataset that replaces the job's, and the folder where its relative paths start."""

    dataset: Dataset
    base_dir: Path


async def stored_job(store: Store, name: str) -> RolloutJob:
    """Return the job as last planned, with its store set to the one that it is read from.

    Raises UsageError if there is no such job or its spec is unreadable.
    """
    plan = await store.plan(name)
    try:
        job = RolloutJob.model_validate(plan.job)
    except ValidationError as error:
        raise UsageError(
            f"the spec of {name} can't be read",
            why="its plan holds none" if not plan.job else str(error).partition("\n")[0],
            fix="another version wrote it; use that one",
        ) from error
    moved = job.spec.store.model_copy(update={"uri": store.uri})
    return job.with_spec(store=moved)


async def open_tasks(
    job: RolloutJob,
    *,
    base_dir: Path,
    on_note: Callable[[str], None],
    other: OtherDataset | None = None,
) -> StoredTasks:
    """Load the job's tasks and extensions. Relative paths start at `base_dir`.

    All tasks of the dataset are loaded, because the job may have grown over several selections.
    Raises the errors of loading a dataset.
    """
    await import_extensions(job)
    return await load_tasks(job, base_dir=base_dir, on_note=on_note, other=other)


async def load_noted(
    dataset: Dataset, *, base_dir: Path, on_note: Callable[[str], None]
) -> LoadedDataset:
    """Load a dataset, with notes for people about anything left out. Raises like `load`."""
    loaded = await load(dataset, base_dir=base_dir, on_progress=on_note)
    for note in (*(f"left out: {problem}" for problem in loaded.problems), *loaded.notes):
        on_note(note)
    return loaded


async def load_tasks(
    job: RolloutJob,
    *,
    base_dir: Path,
    on_note: Callable[[str], None],
    other: OtherDataset | None = None,
) -> StoredTasks:
    """Load the job's tasks without running any code from its store."""
    chosen = other or OtherDataset(job.spec.dataset, base_dir)
    everything: dict[str, object] = {"include": (), "exclude": (), "slice": ""}
    everything |= {"quarantine": None, "skip_bad_rows": True}
    loaded = await load(
        chosen.dataset.model_copy(update=everything),
        base_dir=chosen.base_dir,
        on_progress=on_note,
    )
    return StoredTasks(job, {each.instance_id: each for each in loaded.instances})


async def for_each(
    items: AsyncIterator[_Item], work: Callable[[_Item], Awaitable[None]], *, parallelism: int
) -> None:
    """Process every item, `parallelism` at a time; read only a few ahead.

    The first error stops all work.
    """
    turn = asyncio.Lock()

    async def take() -> None:
        while True:
            async with turn:
                try:
                    item = await anext(items)
                except StopAsyncIteration:
                    return
            await work(item)

    await gather_all([take() for _ in range(parallelism)])
