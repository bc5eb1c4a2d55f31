"""Open a stored job for work on its trajectories, with its tasks and sandboxes for them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from swe_rollout.cli.job_address import JobLocation, ViewTarget, find_target
from swe_rollout.cli.job_file import in_sandbox
from swe_rollout.cli.job_tables import write_left_out
from swe_rollout.cli.options import SandboxKind
from swe_rollout.cli.output import say
from swe_rollout.errors import TaskError

if TYPE_CHECKING:
    from swe_rollout.sandbox.base import SandboxProvider
    from swe_rollout.store.damage import DamagedRecord
    from swe_rollout.store.store import Store
    from swe_rollout.types.instance import Instance
    from swe_rollout.types.trajectory import Trajectory
    from swe_rollout.worker.stored_tasks import OtherDataset, StoredTasks


@dataclass(frozen=True, slots=True)
class WorkOptions:
    """The command line's options for the work."""

    sandbox: SandboxKind | None
    """None for the kind that the job used."""
    dataset: str | None
    """None for the job's own dataset."""
    with_files: Sequence[Path] = ()


@dataclass(frozen=True, slots=True)
class StoredWork:
    """The resources for work on stored trajectories."""

    target: ViewTarget
    tasks: StoredTasks
    sandboxes: SandboxProvider

    async def on_each(
        self,
        work: Callable[[Trajectory, Instance | TaskError], Awaitable[None]],
        *,
        parallelism: int,
    ) -> None:
        """Process each record, with its task or the reason why that is missing.

        Damaged records are skipped, and listed at the end.
        """
        from swe_rollout.worker.stored_tasks import for_each

        damaged: list[DamagedRecord] = []

        async def one(trajectory: Trajectory) -> None:
            task: Instance | TaskError
            try:
                task = self.tasks.task_of(trajectory)
            except TaskError as error:
                task = error
            await work(trajectory, task)

        records = targeted(self.target.open_store(), self.target, damaged)
        await for_each(records, one, parallelism=parallelism)
        write_left_out(damaged)


@asynccontextmanager
async def open_work(
    address: str, location: JobLocation, options: WorkOptions
) -> AsyncIterator[StoredWork]:
    """Open the job's tasks and sandboxes while the block runs, and close them at its end.

    Raises the errors of opening a job: UsageError, PrerequisiteError, UnreachableError.
    """
    from swe_rollout.cli.dataset_argument import import_files
    from swe_rollout.worker.sandboxes import SandboxSetup, open_sandboxes
    from swe_rollout.worker.stored_tasks import open_tasks, stored_job

    target = await find_target(address, location)
    import_files(options.with_files)
    store = target.open_store()
    job = await stored_job(store, target.ref.job)
    if options.sandbox is not None:
        job = in_sandbox(job, options.sandbox)
    other = named_other(options.dataset)
    tasks = await open_tasks(job, base_dir=Path.cwd(), on_note=say, other=other)
    episodes = {target.episode} if target.episode else await store.committed(target.ref.job)
    needed = {episode.instance for episode in episodes}
    async with AsyncExitStack() as stack:
        setup = SandboxSetup(
            [each for each in tasks.instances.values() if each.instance_id in needed],
            job.metadata.name,
            say,
            # Otherwise, a model wrote the commands of its episodes.
            harmless=job.spec.policy.scripted is not None,
        )
        yield StoredWork(target, tasks, open_sandboxes(job.spec.sandbox, setup, stack))


def named_other(name: str | None) -> OtherDataset | None:
    """Return the dataset of this name, to replace the job's, or None without a name."""
    from swe_rollout.cli.dataset_argument import named_dataset
    from swe_rollout.worker.stored_tasks import OtherDataset

    if name is None:
        return None
    named = named_dataset(name)
    return OtherDataset(named.dataset, named.base_dir)


async def targeted(
    store: Store, target: ViewTarget, damaged: list[DamagedRecord]
) -> AsyncIterator[Trajectory]:
    """Read the episode, or all of the job's; collect damaged records instead of yielding them."""
    if target.episode is not None:
        yield await store.read(target.episode)
        return
    async for trajectory in store.trajectories(target.ref.job, on_damage=damaged.append):
        yield trajectory
