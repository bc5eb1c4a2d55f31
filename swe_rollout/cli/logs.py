"""`logs` and `events`: the log lines of a job's workers, and the cluster's events about it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from swe_rollout.cli.interrupt import InterruptMessages, run_async
from swe_rollout.cli.job_address import JobLocation, LogFilter, find_target, open_job
from swe_rollout.cli.options import (
    Context,
    Form,
    JobName,
    Namespace,
    OutputFormat,
    complete_address,
    option,
)
from swe_rollout.cli.output import say, write_data, write_lines, write_log, write_table
from swe_rollout.errors import UsageError
from swe_rollout.text.escaping import one_line

if TYPE_CHECKING:
    from swe_rollout.cluster.objects import KubernetesEvent
    from swe_rollout.cluster.worker_logs import LogLine

LogAddress = Annotated[
    str,
    typer.Argument(
        metavar="JOB|JOB/INSTANCE/SAMPLE",
        help="A job on the cluster or in a store, or one of its episodes.",
        autocompletion=complete_address,
    ),
]
Following = Annotated[bool, option("--follow", "-f", help="Keep printing new lines.")]
Tests = Annotated[bool, option("--tests", help="The log of the episode's tests.")]


def logs(
    address: LogAddress,
    namespace: Namespace = None,
    context: Context = None,
    *,
    follow: Following = False,
    tests: Tests = False,
) -> None:
    """Print the log lines of a job's workers, or only those that name one episode.

    For a job in a store, print a line for each episode as it is committed; for an episode, a line
    for each turn. With --tests, print the complete log of an episode's test run from the store.

    swe-rollout logs demo/sqlparse-0.5.2/0 -n rollouts

    swe-rollout logs runs/demo -f

    swe-rollout logs runs/demo/sqlparse-0.5.2/0 --tests
    """
    location = JobLocation(namespace, context)
    if tests:
        asyncio.run(_print_test_log(address, location))
        return
    work = _print_either(address, location, follow=follow)
    run_async(work, on_note=say, messages=InterruptMessages("stopped", ""))


async def _print_either(address: str, location: JobLocation, *, follow: bool) -> None:
    """Print the log of a job in a store, or else of the job on the cluster."""
    from swe_rollout.cli.stored_logs import find_stored, print_stored

    found = None if location.given else await find_stored(address)
    if found is not None:
        await print_stored(found, follow=follow)
    else:
        await _print_logs(LogFilter.parse(address), location, follow=follow)


async def _print_test_log(address: str, location: JobLocation) -> None:
    target = await find_target(address, location)
    if target.episode is None:
        raise UsageError(
            f"{address} is no episode",
            why="a job has a test log for each of its episodes",
            fix="write JOB/INSTANCE/SAMPLE, such as runs/demo/sqlparse-0.5.2/0",
        )
    write_log(await target.open_store().read_log(target.episode))


async def _print_logs(wanted: LogFilter, location: JobLocation, *, follow: bool) -> None:
    from swe_rollout.cluster.worker_logs import follow_logs, read_logs

    def write(line: LogLine) -> None:
        if wanted.matches(line.text):
            write_lines([one_line(line.text, limit=16000)])

    async with open_job(wanted.job, location) as (jobs, job):
        if not await jobs.workers(job.namespace, job.name):
            say("the job has no worker pods at the moment")
        if follow:
            await follow_logs(jobs, job.namespace, job.name, on_line=write)
            return
        for line in await read_logs(jobs, job.namespace, job.name):
            write(line)


def events(
    job: JobName,
    namespace: Namespace = None,
    context: Context = None,
    *,
    output: Form = OutputFormat.TABLE,
) -> None:
    """List the cluster's events about a job, its worker Job and its workers.

    swe-rollout events demo

    swe-rollout events rollouts/demo -o yaml
    """
    found = asyncio.run(_read_events(job, JobLocation(namespace, context)))
    rows: list[dict[str, str | int]] = [
        {
            "time": each.time,
            "type": each.type,
            "reason": each.reason,
            "object": each.about,
            "count": each.count or 1,
            "message": each.message,
        }
        for each in found
    ]
    if output.is_data:
        write_data({"events": rows}, output)
    else:
        columns = ["LAST SEEN", "TYPE", "REASON", "OBJECT", "COUNT#", "MESSAGE"]
        cells = [[str(value) for value in row.values()] for row in rows]
        write_table(columns, cells, output)


async def _read_events(address: str, location: JobLocation) -> tuple[KubernetesEvent, ...]:
    async with open_job(address, location) as (jobs, job):
        return await jobs.events(job)
