"""`status`: the progress and results of jobs, from a store or from the cluster."""

from __future__ import annotations

import asyncio
import shlex
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from swe_rollout.cli.job_address import JobLocation, find_either, find_store
from swe_rollout.cli.job_tables import write_job, write_jobs, write_result
from swe_rollout.cli.options import (
    LOCAL_RUNS,
    Context,
    Form,
    Namespace,
    OptionalJobAddress,
    OutputFormat,
    names_cluster,
)
from swe_rollout.cli.output import say, write_data, write_table
from swe_rollout.cli.wrong_address import address_here, no_store
from swe_rollout.errors import StoreError, UsageError, gather_all
from swe_rollout.store.layout import JobRef
from swe_rollout.text.formatting import format_duration

if TYPE_CHECKING:
    from swe_rollout.cluster.job_objects import JobObject
    from swe_rollout.store.store import Store
    from swe_rollout.store.summary import JobSummary

_AT_ONCE = 16
"""Jobs of a store that are read concurrently."""

StoreFolder = Annotated[
    str, typer.Argument(metavar="[STORE]", help="A store: a folder, or s3://bucket/prefix.")
]


def status(
    job: OptionalJobAddress = None,
    namespace: Namespace = None,
    context: Context = None,
    *,
    output: Form = OutputFormat.TABLE,
) -> None:
    """Show a job's episodes: how many are committed, their rewards, how they ended, what failed.

    The job is in a store or on the cluster. Without JOB, list the jobs of the namespace; without a
    cluster, those in the folder runs.

    swe-rollout status runs/demo

    swe-rollout status demo -n rollouts -o json
    """
    location = JobLocation(namespace, context)
    if job is not None:
        _write_state(asyncio.run(_read_state(job, location)), output)
    elif location.given or names_cluster():
        _write_jobs(asyncio.run(_list_jobs(location)), output)
    elif not _write_stored(LOCAL_RUNS, output):
        say(f"no cluster is configured, and {LOCAL_RUNS} has no job")


def _write_jobs(jobs: tuple[JobObject, ...], output: OutputFormat) -> None:
    from swe_rollout.launcher.job_result import summary_of

    if output.is_data:
        write_data({"jobs": [summary_of(each).to_dict() for each in jobs]}, output)
    else:
        write_jobs(jobs, output)


def _write_state(state: JobSummary | JobObject, output: OutputFormat) -> None:
    from swe_rollout.store.summary import JobSummary

    if isinstance(state, JobSummary):
        write_result(state, output)
    elif output.is_data:
        from swe_rollout.launcher.job_result import summary_of

        write_data(summary_of(state).to_dict(), output)
    else:
        write_job(state, output)


def ls(store: StoreFolder = LOCAL_RUNS, *, output: Form = OutputFormat.TABLE) -> None:
    """List the jobs of a store: how many episodes have a record, and when each was begun.

    No record is read, so damaged ones count; `status` finds them.

    swe-rollout ls

    swe-rollout ls s3://rollouts -o json
    """
    if not store.strip():
        raise UsageError("the store is empty", fix=f"leave it out for {LOCAL_RUNS}, or name one")
    if not _write_stored(store, output):
        command = f"swe-rollout run job.yaml --store {shlex.quote(store)}"
        say(f"{store} has no job yet: `{command}` starts one")


def _write_stored(address: str, output: OutputFormat) -> bool:
    """List the jobs in a store; return whether there are any."""
    is_there = address != LOCAL_RUNS or Path(LOCAL_RUNS).is_dir()
    found = asyncio.run(_list_stored(address)) if is_there else []
    if output.is_data:
        write_data({"jobs": [each.to_dict() for each in found]}, output)
    else:
        write_table(["JOB", "DONE#", "AGE#"], [each.row() for each in found], output)
    for each in found:
        if each.problem:
            say(f"{each.job}: {each.problem}")
    return bool(found)


@dataclass(frozen=True, slots=True)
class _StoredJob:
    """A job as its store lists it; no records are read."""

    job: str
    """Its address."""
    committed: int = 0
    """Episodes with a record, which may be damaged."""
    episodes: int = 0
    """The number of planned episodes."""
    begun: datetime | None = None
    problem: str = ""
    """Why its numbers are not known."""

    def row(self) -> list[str]:
        """Return the cells of the table."""
        if self.begun is None:
            return [self.job, "–", "–"]
        age_s = (datetime.now(UTC) - self.begun).total_seconds()
        return [self.job, f"{self.committed}/{self.episodes}", format_duration(age_s)]

    def to_dict(self) -> dict[str, object]:
        """Return the job for programs."""
        if self.begun is None:
            return {"job": self.job, "problem": self.problem}
        numbers = {"committed": self.committed, "episodes": self.episodes}
        return {"job": self.job, **numbers, "begun": self.begun.isoformat(timespec="seconds")}


async def _list_stored(address: str) -> list[_StoredJob]:
    store = await find_store(address)
    if store is None:
        raise no_store(address)
    names = await store.jobs()
    chunks = (names[start : start + _AT_ONCE] for start in range(0, len(names), _AT_ONCE))
    return [
        each
        for chunk in chunks
        for each in await gather_all(_stored(store, name) for name in chunk)
    ]


async def _stored(store: Store, name: str) -> _StoredJob:
    address = address_here(JobRef(store.uri, name))
    try:
        plan = await store.plan(name)
        episodes = (await store.listing(name)).episodes
        begun = await store.begun_at(name)
    except (UsageError, StoreError, FileNotFoundError) as error:
        return _StoredJob(address, problem=str(error))
    planned = plan.episodes + plan.unplanned(episodes)
    return _StoredJob(address, len(episodes), planned, begun)


async def _read_state(address: str, location: JobLocation) -> JobSummary | JobObject:
    from swe_rollout.store.store import Store
    from swe_rollout.store.summary import summarise

    found = await find_either(address, location)
    if isinstance(found, JobRef):
        return await summarise(Store.open(found.store_uri), found.job)
    return found


async def _list_jobs(location: JobLocation) -> tuple[JobObject, ...]:
    from swe_rollout.launcher.remote import open_jobs

    async with open_jobs(location.context) as jobs:
        return await jobs.list_jobs(location.namespace or jobs.namespace)
