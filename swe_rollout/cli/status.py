"""`status`: the progress and results of jobs, from a store or from the cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from swe_rollout.cli.job_address import JobLocation, find_either
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
from swe_rollout.store.layout import JobRef

if TYPE_CHECKING:
    from swe_rollout.cluster.job_objects import JobObject
    from swe_rollout.store.summary import JobSummary


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
    else:
        _write_local(output)


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


def _write_local(output: OutputFormat) -> None:
    """List the jobs in the folder `runs`."""
    folder = Path(LOCAL_RUNS)
    found = asyncio.run(_count_local(f"file://{folder.absolute()}")) if folder.is_dir() else []
    if output.is_data:
        records = [{"job": name, "committed": n, "episodes": all_} for name, n, all_ in found]
        write_data({"jobs": records}, output)
    else:
        rows = [[name, f"{n}/{all_}"] for name, n, all_ in found]
        write_table(["JOB", "DONE#"], rows, output)
    if not found:
        say(f"no cluster is configured, and {LOCAL_RUNS} has no job")


async def _count_local(uri: str) -> list[tuple[str, int, int]]:
    """Return each job with its numbers of committed and planned episodes; read no records."""
    from swe_rollout.store.store import Store

    store = Store.open(uri)
    found: list[tuple[str, int, int]] = []
    for job in await store.jobs():
        episodes = (await store.listing(job)).episodes
        plan = await store.plan(job)
        planned = plan.episodes + plan.unplanned(episodes)
        found.append((f"{LOCAL_RUNS}/{job}", len(episodes), planned))
    return found


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
