"""LaunchedJob: a job on a cluster, seen from a script or a notebook. Synchronous and thin."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from swe_rollout.launcher import remote
from swe_rollout.launcher.outcome import summary_of
from swe_rollout.launcher.sync import run_sync
from swe_rollout.store.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from swe_rollout.cluster.job_objects import JobObject
    from swe_rollout.spec.status import RolloutJobStatus
    from swe_rollout.store.summary import JobSummary
    from swe_rollout.trajectory import EpisodeId, Trajectory

_AT_ONCE = 32
CANCEL_S = 120.0


@dataclass(frozen=True, slots=True)
class LaunchedJob:
    """A job that was launched. It holds no connection: keep it, or `find` it again."""

    name: str
    namespace: str
    store_uri: str
    context: str | None = None
    """Of the kubeconfig; none: the current one."""

    @classmethod
    def of(cls, job: JobObject, *, context: str | None) -> Self:
        """The handle of what the API server has."""
        return cls(job.name, job.namespace, job.spec.store.uri, context)

    @classmethod
    def find(cls, name: str, namespace: str | None = None, context: str | None = None) -> Self:
        """A job that someone launched earlier; raises UsageError when there is none."""

        async def find() -> Self:
            async with remote.open_jobs(context) as jobs:
                found = await jobs.get(namespace or jobs.namespace, name)
            return cls.of(found, context=context)

        return run_sync(find())

    def wait(self, timeout_s: float | None = None) -> JobSummary:
        """The job in figures, when every episode is committed.

        Raises JobFailedError when it failed or was deleted, JobRefusedError when the operator can't
        carry it out, JobTimeoutError after `timeout_s`. ^C leaves the job as it is.
        """

        async def wait() -> JobSummary:
            async with remote.open_jobs(self.context) as jobs:
                job = await jobs.get(self.namespace, self.name)
                return summary_of(await remote.until_finished(jobs, job, timeout_s=timeout_s))

        return run_sync(wait())

    def status(self) -> RolloutJobStatus:
        """How far it is: state, counters, conditions."""

        async def status() -> RolloutJobStatus:
            async with remote.open_jobs(self.context) as jobs:
                return (await jobs.get(self.namespace, self.name)).status

        return run_sync(status())

    def suspend(self) -> None:
        """Start no further episodes and end the running ones; what is committed stays."""
        run_sync(self._suspend(suspended=True))

    def resume(self) -> None:
        """Go on after `suspend`."""
        run_sync(self._suspend(suspended=False))

    def cancel(self, timeout_s: float | None = CANCEL_S) -> None:
        """End the job and wait until its pods are gone; its trajectories stay.

        Nothing happens when it is gone already. Raises JobTimeoutError after `timeout_s`.
        """

        async def cancel() -> None:
            async with remote.open_jobs(self.context) as jobs:
                job = await jobs.find(self.namespace, self.name)
                if job is not None:
                    await remote.cancel(jobs, job, timeout_s=timeout_s)

        run_sync(cancel())

    def trajectories(self) -> Iterator[Trajectory]:
        """What is committed by now, by instance, then sample; needs the store, not the cluster."""
        store = Store.open(self.store_uri)
        episodes = sorted(
            run_sync(store.committed(self.name)), key=lambda e: (e.instance, e.sample)
        )
        for start in range(0, len(episodes), _AT_ONCE):
            yield from run_sync(_read(store, episodes[start : start + _AT_ONCE]))

    async def _suspend(self, *, suspended: bool) -> None:
        async with remote.open_jobs(self.context) as jobs:
            await jobs.suspend(self.namespace, self.name, suspended=suspended)


async def _read(store: Store, episodes: list[EpisodeId]) -> list[Trajectory]:
    return await asyncio.gather(*map(store.read, episodes))
