"""Look: `status` and `view`, over what a store holds, or what the cluster says of a job."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from swe_rollout.cli.completion import job_names
from swe_rollout.cli.options import Context, Form, Namespace, OutputFormat, option

if TYPE_CHECKING:
    from swe_rollout.cli.address import Place
    from swe_rollout.cluster.job_objects import JobObject
    from swe_rollout.store.layout import JobRef
    from swe_rollout.store.summary import JobSummary
    from swe_rollout.trajectory import EpisodeId

Address = Annotated[
    str,
    typer.Argument(
        metavar="JOB|JOB/INSTANCE/SAMPLE",
        help="A job in a store or on the cluster, or one of its episodes.",
        autocompletion=job_names,
    ),
]
OptionalJob = Annotated[
    str | None,
    typer.Argument(
        metavar="[JOB]",
        help="A job in a store (runs/demo, s3://bucket/demo) or on the cluster (demo, ns/demo).",
        autocompletion=job_names,
    ),
]
Report = Annotated[
    Path | None, option("--output", "-o", help="The HTML file; by default named after JOB.")
]


def status(
    job: OptionalJob = None,
    namespace: Namespace = None,
    context: Context = None,
    *,
    output: Form = OutputFormat.TABLE,
) -> None:
    """Show where a job is: episodes, rewards, how they ended, what failed.

    A job in a store, or one on the cluster; without JOB, those of the namespace.

    swe-rollout status runs/demo

    swe-rollout status demo -n rollouts -o json
    """
    from swe_rollout.cli.address import Place
    from swe_rollout.cli.job_status import write_job, write_jobs
    from swe_rollout.cli.output import write_json, write_lines
    from swe_rollout.cli.run import write_summary
    from swe_rollout.launcher.outcome import summary_of
    from swe_rollout.store.summary import JobSummary

    place = Place(namespace, context)
    if job is None:
        found = asyncio.run(_jobs(place))
        if output is OutputFormat.JSON:
            write_json({"jobs": [json.loads(summary_of(each).to_json()) for each in found]})
        else:
            write_jobs(found)
        return
    state = asyncio.run(_state(job, place))
    if output is OutputFormat.JSON:
        summary = state if isinstance(state, JobSummary) else summary_of(state)
        write_lines([summary.to_json().decode()])
    elif isinstance(state, JobSummary):
        write_summary(state)
    else:
        write_job(state)


def view(
    address: Address,
    output: Report = None,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Write one HTML page of a job or an episode: turns, tokens, patch, tests.

    It opens in any browser, from a file or from a bucket, and loads nothing.

    swe-rollout view runs/demo

    swe-rollout view runs/demo/sqlparse-0.5.1/0 -o report.html
    """
    from swe_rollout.cli.address import Place
    from swe_rollout.cli.output import say, write_lines

    report = asyncio.run(_report(address, Place(namespace, context)))
    out = output or Path(f"{report.name}.html")
    out.write_text(report.page, encoding="utf-8")
    say(f"{out.stat().st_size / 1024:.0f} KiB; open it in a browser")
    write_lines([str(out)])


@dataclass(frozen=True, slots=True)
class Target:
    """What to look at: a job, or one of its episodes."""

    ref: JobRef
    episode: EpisodeId | None

    @property
    def name(self) -> str:
        """For a file name."""
        if self.episode is None:
            return self.ref.job
        return f"{self.ref.job}-{self.episode.instance}-{self.episode.sample}"


async def find_target(address: str, place: Place) -> Target:
    """What `address` stands for. A job may be named like a sample, so its store is asked."""
    from swe_rollout.cli.address import find_ref
    from swe_rollout.errors import UsageError
    from swe_rollout.trajectory import EpisodeId

    match = re.fullmatch(r"(.+)/([^/]+)/([0-9]+)/?", address)
    if match is not None and not match[1].endswith(":/"):
        try:
            ref = await find_ref(match[1], place)
        except UsageError:
            pass
        else:
            return Target(ref, EpisodeId(ref.job, match[2], int(match[3])))
    return Target(await find_ref(address, place), None)


async def _state(address: str, place: Place) -> JobSummary | JobObject:
    from swe_rollout.cli.address import find_either
    from swe_rollout.store.layout import JobRef
    from swe_rollout.store.store import Store
    from swe_rollout.store.summary import summarise

    found = await find_either(address, place)
    if isinstance(found, JobRef):
        return await summarise(Store.open(found.store_uri), found.job)
    return found


async def _jobs(place: Place) -> tuple[JobObject, ...]:
    from swe_rollout.launcher.remote import open_jobs

    async with open_jobs(place.context) as jobs:
        return await jobs.in_namespace(place.namespace or jobs.namespace)


@dataclass(frozen=True, slots=True)
class _Report:
    name: str
    page: str


async def _report(address: str, place: Place) -> _Report:
    from swe_rollout.store.store import Store
    from swe_rollout.store.summary import summarise
    from swe_rollout.viewer.page import JobPage, episode_page

    target = await find_target(address, place)
    store = Store.open(target.ref.store_uri)
    if target.episode is not None:
        return _Report(target.name, episode_page(await store.read(target.episode)))
    page = JobPage(await summarise(store, target.ref.job))
    async for trajectory in store.trajectories(target.ref.job):
        page.add(trajectory)
    return _Report(target.name, page.html())
