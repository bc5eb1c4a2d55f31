"""Read stores from Python: `open_store("s3://rollouts")`, `read_trajectories("runs/demo")`, and the
result of a run in this process.

Everything is synchronous, for scripts and notebooks, and needs only the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from swe_rollout.launcher.group_stream import Groups
from swe_rollout.launcher.sync import run_sync
from swe_rollout.store.claims import Claim, Claimant, Claims
from swe_rollout.store.damage import DamagedRecord
from swe_rollout.store.layout import JobRef, store_uri
from swe_rollout.store.store import Store
from swe_rollout.store.summary import JobSummary, summarise
from swe_rollout.text.notebook_html import card
from swe_rollout.training.group_source import Handout, Watch
from swe_rollout.training.sample_bounds import MAX_FAILED_FRACTION, FailureRate, Staleness
from swe_rollout.training.stored_groups import StoredGroups
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.trajectory import Trajectory

if TYPE_CHECKING:
    from swe_rollout.export.frame import FrameLibrary
    from swe_rollout.worker.job import RunSummary

log = structlog.get_logger()
_READ_BATCH = 32


@dataclass(frozen=True, slots=True)
class StoredJob:
    """A job in a store. Iterating over it reads its trajectories one by one."""

    store_uri: str
    name: str

    def __iter__(self) -> Iterator[Trajectory]:
        return self.trajectories()

    def __repr__(self) -> str:
        return f"<StoredJob {self.name} in {self.store_uri}>"

    def _repr_html_(self) -> str:
        """Show the job's address as a card in a notebook, without reading the store."""
        read = "summary() counts, frame() tabulates, trajectories() and groups() iterate"
        return card(f"StoredJob {self.name}", {"store": self.store_uri, "read": read})

    def frame(self, library: FrameLibrary | None = None) -> Any:
        """Return a `pandas.DataFrame` or a `polars.DataFrame` with a row for each episode.

        `library` defaults to the one that is imported, or else installed, pandas before polars.
        Damaged records are skipped, with a warning in the log. Raises PrerequisiteError if neither
        is installed.
        """
        from swe_rollout.export.frame import choose_library, frame

        return frame(self.trajectories(), choose_library(library))

    def trajectories(self) -> Iterator[Trajectory]:
        """Read the committed trajectories lazily, in order of instance, then sample.

        Damaged records are skipped, with a warning in the log; `damaged` lists them.
        """
        for record in self._records():
            if isinstance(record, DamagedRecord):
                log.warning("damaged_record_left_out", object=record.address, why=record.why)
            else:
                yield record

    def read(self, instance: str, sample: int = 0) -> Trajectory:
        """Read one trajectory. Raises UsageError if there is none, StoreError if it is damaged."""
        episode = EpisodeId(self.name, instance, sample)
        return run_sync(Store.open(self.store_uri).read(episode))

    def summary(self) -> JobSummary:
        """Count the job's episodes by outcome, as `swe-rollout status` does."""
        return run_sync(summarise(Store.open(self.store_uri), self.name))

    def groups(
        self,
        trainer: str,
        *,
        epoch: int = 0,
        trained: Iterable[str] = (),
        staleness: Staleness | None = None,
        max_failed_fraction: float = MAX_FAILED_FRACTION,
        wait_s: float | None = None,
    ) -> Groups:
        """Read the job's groups as they become complete in the store, even while a job runs.

        Each group goes to one process of `trainer`, once. `epoch` counts the trainer's starts: a
        later epoch gets the groups that earlier ones claimed but did not acknowledge, except those
        in `trained`, the groups in the checkpoint from which it resumes. Iteration ends when no
        group is left or none arrived for `wait_s` seconds; None waits without limit.

        for group in open_store("s3://rollouts").job("demo").groups("t1"): ...
        """
        claimant = Claimant(trainer, epoch)
        watch = Watch(FailureRate(max_failed_fraction), staleness)
        return Groups(run_sync(self._groups(claimant, watch, tuple(trained), wait_s)), run_sync)

    def claims(self, trainer: str) -> tuple[Claim, ...]:
        """List the last step of `trainer` with each group; `claimed` ones are unfinished."""
        return run_sync(_claims(Store.open(self.store_uri).claims(self.name, Claimant(trainer))))

    async def _groups(
        self, claimant: Claimant, watch: Watch, trained: tuple[str, ...], wait_s: float | None
    ) -> StoredGroups:
        store = Store.open(self.store_uri)
        handout = Handout(self.name, store.claims(self.name, claimant), watch)
        await handout.begin(trained)
        return StoredGroups(store, self.name, handout, wait_s=wait_s)

    def damaged(self) -> tuple[DamagedRecord, ...]:
        """List the records that can't be read."""
        return tuple(each for each in self._records() if isinstance(each, DamagedRecord))

    def set_aside_damaged(self) -> tuple[str, ...]:
        """Move unreadable records aside; return their new addresses.

        Their episodes then count as uncommitted: the next run or launch of the job rolls them out.
        Do not call it while the job runs.
        """
        store = Store.open(self.store_uri)
        moved = [run_sync(store.set_aside(record.episode)) for record in self.damaged()]
        return tuple(address for address in moved if address is not None)

    def _records(self) -> Iterator[Trajectory | DamagedRecord]:
        store = Store.open(self.store_uri)
        episodes = sorted(
            run_sync(store.committed(self.name)), key=lambda e: (e.instance, e.sample)
        )
        for start in range(0, len(episodes), _READ_BATCH):
            yield from run_sync(_read(store, episodes[start : start + _READ_BATCH]))


@dataclass(frozen=True, slots=True)
class JobStore:
    """A store: a folder or a bucket that holds jobs."""

    uri: str

    def jobs(self) -> tuple[StoredJob, ...]:
        """List the jobs in the store, by name."""
        return tuple(map(self.job, run_sync(Store.open(self.uri).jobs())))

    def job(self, name: str) -> StoredJob:
        """Return the job with this name. Raises UsageError if the store has none."""
        run_sync(Store.open(self.uri).plan(name))
        return StoredJob(self.uri, name)

    def __iter__(self) -> Iterator[StoredJob]:
        return iter(self.jobs())


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of `RolloutJob.run`. Iterating over it reads the job's trajectories."""

    run: RunSummary
    stored: StoredJob

    def __iter__(self) -> Iterator[Trajectory]:
        return self.trajectories()

    def trajectories(self) -> Iterator[Trajectory]:
        """Read the job's trajectories lazily from its store, including those of earlier runs."""
        return self.stored.trajectories()

    def frame(self, library: FrameLibrary | None = None) -> Any:
        """Return the job's episodes as a data frame, like `StoredJob.frame`."""
        return self.stored.frame(library)

    @property
    def summary(self) -> JobSummary:
        """Return the counts and means of all episodes in the store when the run ended."""
        return self.run.job

    @property
    def already_committed(self) -> int:
        """Number of episodes that were committed before this run and did not run again."""
        return self.run.earlier

    @property
    def ran(self) -> int:
        """Number of episodes that this run rolled out."""
        return self.run.ran

    def __repr__(self) -> str:
        return f"<RunResult {self.summary!r}; {self.run}>"

    def _repr_html_(self) -> str:
        """Show the summary as a card in a notebook."""
        store = f"{self.stored.store_uri}/{self.stored.name}"
        return self.summary.card(f"Job {self.stored.name}", run=str(self.run), store=store)


def open_store(uri: str | Path) -> JobStore:
    """Open the store at `uri`: `s3://bucket/prefix`, `file:///data/runs` or the path `runs`."""
    return JobStore(store_uri(str(uri)))


def read_trajectories(address: str | Path) -> Iterator[Trajectory]:
    """Read the trajectories of the job at `address`, such as `runs/demo`, lazily.

    Raises UsageError if there is no such job.
    """
    ref = JobRef.parse(str(address))
    return open_store(ref.store_uri).job(ref.job).trajectories()


async def _read(store: Store, episodes: Sequence[EpisodeId]) -> list[Trajectory | DamagedRecord]:
    return [record async for record in store.records(episodes)]


async def _claims(claims: Claims) -> tuple[Claim, ...]:
    await claims.refresh()
    return claims.all()
