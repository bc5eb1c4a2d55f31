"""Look: `status` and `view`, over what a store holds. They need no cluster and no engine."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from swe_rollout.cli.options import Form, JobAddress, OutputFormat, option

if TYPE_CHECKING:
    from swe_rollout.store.layout import JobRef
    from swe_rollout.store.summary import JobSummary
    from swe_rollout.trajectory import EpisodeId

Address = Annotated[
    str, typer.Argument(metavar="JOB|JOB/INSTANCE/SAMPLE", help="A job in a store, or one episode.")
]
Report = Annotated[
    Path | None, option("--output", "-o", help="The HTML file; by default named after JOB.")
]


def status(job: JobAddress, output: Form = OutputFormat.TABLE) -> None:
    """Show where a job is: episodes, rewards, how they ended, what failed.

    swe-rollout status runs/demo

    swe-rollout status s3://rollouts/demo -o json
    """
    from swe_rollout.cli.output import write_lines
    from swe_rollout.cli.run import write_summary

    summary = asyncio.run(_summary(job))
    if output is OutputFormat.JSON:
        write_lines([summary.to_json().decode()])
    else:
        write_summary(summary)


def view(address: Address, output: Report = None) -> None:
    """Write one HTML page of a job or an episode: turns, tokens, patch, tests.

    It opens in any browser, from a file or from a bucket, and loads nothing.

    swe-rollout view runs/demo

    swe-rollout view runs/demo/sqlparse-0.5.1/0 -o report.html
    """
    from swe_rollout.cli.output import say, write_lines

    report = asyncio.run(_report(address))
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


def episode_target(address: str) -> Target | None:
    """The episode that `JOB/INSTANCE/SAMPLE` may stand for; none when it has another form."""
    from swe_rollout.store.layout import JobRef
    from swe_rollout.trajectory import EpisodeId

    match = re.fullmatch(r"(.+)/([^/]+)/([0-9]+)/?", address)
    if match is None or match[1].endswith(":/"):
        return None
    ref = JobRef.parse(match[1])
    return Target(ref, EpisodeId(ref.job, match[2], int(match[3])))


async def find_target(address: str) -> Target:
    """What `address` stands for. A job may be named like a sample, so its store is asked."""
    from swe_rollout.errors import UsageError
    from swe_rollout.store.layout import JobRef
    from swe_rollout.store.store import Store

    episode = episode_target(address)
    if episode is not None:
        try:
            await Store.open(episode.ref.store_uri).plan(episode.ref.job)
        except UsageError:
            pass
        else:
            return episode
    return Target(JobRef.parse(address), None)


async def _summary(address: str) -> JobSummary:
    from swe_rollout.store.layout import JobRef
    from swe_rollout.store.store import Store
    from swe_rollout.store.summary import summarise

    ref = JobRef.parse(address)
    return await summarise(Store.open(ref.store_uri), ref.job)


@dataclass(frozen=True, slots=True)
class _Report:
    name: str
    page: str


async def _report(address: str) -> _Report:
    from swe_rollout.store.store import Store
    from swe_rollout.store.summary import summarise
    from swe_rollout.viewer.page import JobPage, episode_page

    target = await find_target(address)
    store = Store.open(target.ref.store_uri)
    if target.episode is not None:
        return _Report(target.name, episode_page(await store.read(target.episode)))
    page = JobPage(await summarise(store, target.ref.job))
    async for trajectory in store.trajectories(target.ref.job):
        page.add(trajectory)
    return _Report(target.name, page.html())
