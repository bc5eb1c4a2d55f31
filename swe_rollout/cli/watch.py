"""Watch: `watch`, `logs` and `events` of a job on the cluster."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from swe_rollout.cli.options import (
    Context,
    DisplayKind,
    Form,
    JobName,
    Namespace,
    OutputFormat,
    Shown,
    option,
)

if TYPE_CHECKING:
    from swe_rollout.cli.address import Place
    from swe_rollout.cluster.job_objects import JobEvent
    from swe_rollout.cluster.worker_logs import LogLine

LogAddress = Annotated[
    str,
    typer.Argument(
        metavar="JOB|JOB/INSTANCE/SAMPLE", help="A job on the cluster, or one of its episodes."
    ),
]
Following = Annotated[bool, option("--follow", "-f", help="Go on with lines as they come.")]


def watch(
    job: JobName,
    namespace: Namespace = None,
    context: Context = None,
    *,
    display: Shown = DisplayKind.AUTO,
    output: Form = OutputFormat.TABLE,
) -> None:
    """Watch a job on the cluster until it is over. Exit 1 when it fails.

    swe-rollout watch demo

    swe-rollout watch rollouts/demo --display plain
    """
    from swe_rollout.cli.address import Place, find_job
    from swe_rollout.cli.launch import follow

    place = Place(namespace, context)
    follow(asyncio.run(find_job(job, place)), place, display=display, output=output)


def logs(
    address: LogAddress,
    namespace: Namespace = None,
    context: Context = None,
    *,
    follow: Following = False,
) -> None:
    """Print what the workers of a job logged, or of it what one episode is about.

    swe-rollout logs demo -f

    swe-rollout logs demo/sqlparse-0.5.1/0 -n rollouts
    """
    from swe_rollout.cli.address import Place
    from swe_rollout.cli.interrupt import Words, run_async
    from swe_rollout.cli.output import say

    wanted = log_filter(address)
    work = _logs(wanted, Place(namespace, context), follow=follow)
    run_async(work, on_note=say, words=Words("stopped", ""))


def events(
    job: JobName,
    namespace: Namespace = None,
    context: Context = None,
    *,
    output: Form = OutputFormat.TABLE,
) -> None:
    """List what the cluster said about a job, its worker Job and its workers.

    swe-rollout events demo
    """
    from swe_rollout.cli.address import Place
    from swe_rollout.cli.output import write_json, write_table

    found = asyncio.run(_events(job, Place(namespace, context)))
    rows = [_event_record(each) for each in found]
    if output is OutputFormat.JSON:
        write_json({"events": rows})
    else:
        columns = ["LAST SEEN", "TYPE", "REASON", "OBJECT", "COUNT#", "MESSAGE"]
        write_table(columns, [[str(value) for value in row.values()] for row in rows])


@dataclass(frozen=True, slots=True)
class LogFilter:
    """Whose lines are wanted: all of a job's workers, or those that name an episode."""

    job: str
    """`demo` or `ns/demo`."""
    episode: str | None
    """`INSTANCE/SAMPLE`."""

    def takes(self, text: str) -> bool:
        """Whether the line is wanted: episodes are named by their whole address."""
        if self.episode is None:
            return True
        address = re.escape(f"{self.job.rpartition('/')[2]}/{self.episode}")
        return re.search(rf"(?<![^\s=\"'(]){address}(?![^\s\"'),:;])", text) is not None


def log_filter(address: str) -> LogFilter:
    """`demo`, `ns/demo`, `demo/INSTANCE/SAMPLE` or `ns/demo/INSTANCE/SAMPLE`."""
    match = re.fullmatch(r"(.+?)/([^/]+/[0-9]+)", address)
    return LogFilter(match[1], match[2]) if match else LogFilter(address, None)


async def _logs(wanted: LogFilter, place: Place, *, follow: bool) -> None:
    from swe_rollout.cli.address import job_name
    from swe_rollout.cli.output import say, write_lines
    from swe_rollout.cluster.worker_logs import follow_logs, read_logs
    from swe_rollout.launcher.remote import open_jobs
    from swe_rollout.viewer.visible import one_line

    def write(line: LogLine) -> None:
        if wanted.takes(line.text):
            write_lines([one_line(line.text, limit=16000)])

    named = job_name(wanted.job, place)
    async with open_jobs(place.context) as jobs:
        job = await jobs.get(named.namespace or jobs.namespace, named.name)
        if not await jobs.workers(job.namespace, job.name):
            say("the job has no worker pods now")
        if follow:
            await follow_logs(jobs, job.namespace, job.name, on_line=write)
            return
        for line in await read_logs(jobs, job.namespace, job.name):
            write(line)


async def _events(address: str, place: Place) -> tuple[JobEvent, ...]:
    from swe_rollout.cli.address import job_name
    from swe_rollout.launcher.remote import open_jobs

    wanted = job_name(address, place)
    async with open_jobs(place.context) as jobs:
        job = await jobs.get(wanted.namespace or jobs.namespace, wanted.name)
        return await jobs.events(job)


def _event_record(event: JobEvent) -> dict[str, str | int]:
    return {
        "time": event.time,
        "type": event.type,
        "reason": event.reason,
        "object": event.about,
        "count": event.count or 1,
        "message": event.message,
    }
