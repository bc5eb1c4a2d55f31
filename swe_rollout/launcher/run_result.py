"""The result of a job that ran in this process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from swe_rollout.export.frame import FrameLibrary
    from swe_rollout.launcher.stored_job import StoredJob
    from swe_rollout.store.summary import JobSummary
    from swe_rollout.types.trajectory import Trajectory
    from swe_rollout.worker.job import RunSummary


@dataclass(frozen=True, slots=True)
class RunResult:
    """What `RolloutJob.run` did, and the job's trajectories. Iterating over it reads them."""

    run: RunSummary
    stored: StoredJob

    def __iter__(self) -> Iterator[Trajectory]:
        return self.trajectories()

    def trajectories(self) -> Iterator[Trajectory]:
        """Read the job's trajectories from its store while you iterate, earlier runs' included."""
        return self.stored.trajectories()

    def frame(self, library: FrameLibrary | None = None) -> Any:
        """Return the job's episodes as a data frame, as `StoredJob.frame`."""
        return self.stored.frame(library)

    @property
    def summary(self) -> JobSummary:
        """The counts and means of all its episodes, as the store held them when the run ended."""
        return self.run.job

    @property
    def already_committed(self) -> int:
        """Episodes that were committed before this run, and did not run again."""
        return self.run.earlier

    @property
    def ran(self) -> int:
        """Episodes that this run rolled out."""
        return self.run.ran

    def __repr__(self) -> str:
        return f"<RunResult {self.summary!r}; {self.run}>"

    def _repr_html_(self) -> str:
        """Show the summary as a card in a notebook."""
        store = f"{self.stored.store_uri}/{self.stored.name}"
        return self.summary.card(f"Job {self.stored.name}", run=str(self.run), store=store)
