"""LaunchedJob: a synchronous handle of a job on a cluster, for scripts and notebooks."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar

from swe_rollout.cluster.job_objects import JobObject
from swe_rollout.cluster.jobs import Jobs
from swe_rollout.launcher import remote
from swe_rollout.launcher.job_result import summary_of
from swe_rollout.launcher.notebook import open_cell
from swe_rollout.launcher.stored_job import StoredJob
from swe_rollout.launcher.sync import run_sync
from swe_rollout.launcher.watched_job import WatchedJob, job_snapshot
from swe_rollout.spec.status import RolloutJobStatus
from swe_rollout.store.summary import JobSummary
from swe_rollout.text.notebook_html import card
from swe_rollout.types.trajectory import Trajectory

if TYPE_CHECKING:
    from swe_rollout.export.frame import FrameLibrary

T = TypeVar("T")
CANCEL_S = 120.0
"""Default wait for a cancelled job's pods."""


@dataclass(frozen=True, slots=True)
class LaunchedJob:
    """The handle of a job on a cluster. It holds no connection; `find` creates another handle."""

    name: str
    namespace: str
    store_uri: str
    context: str | None = None
    """A kubeconfig context; None for the current one."""

    @classmethod
    def of(cls, job: JobObject, *, context: str | None) -> Self:
        """Return the handle of an object read from the API server."""
        return cls(job.name, job.namespace, job.spec.store.uri, context)

    @classmethod
    def find(cls, name: str, namespace: str | None = None, context: str | None = None) -> Self:
        """Return the handle of a job launched earlier. Raises UsageError if there is none."""
        found = _on_cluster(context, lambda jobs: jobs.get(namespace or jobs.namespace, name))
        return cls.of(found, context=context)

    def wait(self, timeout_s: float | None = None) -> JobSummary:
        """Wait until every episode is committed, and return the job's summary.

        Raises JobFailedError if the job failed or was deleted, JobRefusedError if the operator
        can't carry it out, JobTimeoutError after `timeout_s`. ^C leaves the job running. A notebook
        shows the progress in its cell.
        """
        shown = open_cell()

        async def wait(jobs: Jobs) -> JobObject:
            job = await jobs.get(self.namespace, self.name)
            watched = WatchedJob(job)
            cell = nullcontext() if shown is None else shown.updating(lambda: job_snapshot(watched))
            async with cell:
                return await remote.wait_until_complete(
                    jobs, job, timeout_s=timeout_s, on_state=watched.update
                )

        return summary_of(_on_cluster(self.context, wait))

    def status(self) -> RolloutJobStatus:
        """Return the job's current state, counters and conditions."""
        found = _on_cluster(self.context, lambda jobs: jobs.get(self.namespace, self.name))
        return found.status

    def suspend(self) -> None:
        """Stop running episodes and start no more; committed ones stay."""
        self._set_suspended(suspended=True)

    def resume(self) -> None:
        """Continue after `suspend`."""
        self._set_suspended(suspended=False)

    def cancel(self, timeout_s: float | None = CANCEL_S) -> None:
        """Delete the job and wait until its pods are gone; its trajectories stay.

        Does nothing if the job no longer exists. Raises JobTimeoutError after `timeout_s`.
        """

        async def cancel(jobs: Jobs) -> None:
            job = await jobs.find(self.namespace, self.name)
            if job is not None:
                await remote.cancel(jobs, job, timeout_s=timeout_s)

        _on_cluster(self.context, cancel)

    def trajectories(self) -> Iterator[Trajectory]:
        """Read the committed trajectories lazily, in order of instance, then sample.

        It needs the store, not the cluster. Damaged records are skipped, with a warning in the log.
        """
        return StoredJob(self.store_uri, self.name).trajectories()

    def frame(self, library: FrameLibrary | None = None) -> Any:
        """Return the committed episodes as a data frame, like `StoredJob.frame`."""
        return StoredJob(self.store_uri, self.name).frame(library)

    def __repr__(self) -> str:
        return f"<LaunchedJob {self.namespace}/{self.name}: to {self.store_uri}>"

    def _repr_html_(self) -> str:
        """Show the job's address as a card in a notebook, without contacting cluster or store."""
        facts = {
            "namespace": self.namespace,
            "context": self.context or "the current one",
            "store": self.store_uri,
            "ask": "status(), wait(), suspend(), resume(), cancel(), frame(), trajectories()",
        }
        return card(f"LaunchedJob {self.name}", facts)

    def _set_suspended(self, *, suspended: bool) -> None:
        name = self.namespace, self.name
        _on_cluster(self.context, lambda jobs: jobs.set_suspended(*name, suspended=suspended))


def _on_cluster(context: str | None, act: Callable[[Jobs], Coroutine[object, object, T]]) -> T:
    """Connect to the context's cluster, and return the result of `act`."""

    async def connected() -> T:
        async with remote.open_jobs(context) as jobs:
            return await act(jobs)

    return run_sync(connected())
