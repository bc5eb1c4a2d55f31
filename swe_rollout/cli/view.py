"""`view`: a job or an episode as one HTML page."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from swe_rollout.cli.files import require_page, writing
from swe_rollout.cli.interrupt import InterruptMessages, run_async
from swe_rollout.cli.job_address import JobLocation, ViewTarget, find_store, find_targets
from swe_rollout.cli.job_tables import write_left_out
from swe_rollout.cli.options import Context, Namespace, complete_address, option
from swe_rollout.cli.output import say, write_lines
from swe_rollout.cli.wrong_address import job_named_wrongly, local_job, no_store
from swe_rollout.errors import UsageError
from swe_rollout.store.layout import JobRef
from swe_rollout.text.formatting import format_size

if TYPE_CHECKING:
    from swe_rollout.types.episode import EpisodeId
    from swe_rollout.viewer.page import PageJob
    from swe_rollout.viewer.served import PageServer

HtmlFile = Annotated[
    Path | None, option("--output-file", "-O", help="The HTML file. Default: named after JOB.")
]
Other = Annotated[
    str | None,
    typer.Argument(
        metavar="OTHER",
        help="A second job, or a second episode, to compare side by side.",
        autocompletion=complete_address,
    ),
]
Tokenizer = Annotated[
    str | None,
    option(help="Folder or name of the tokenizer that decodes tokens. Default: the job's."),
]
Served = Annotated[
    bool, option("--serve", help="Serve the page to a browser on this machine until ^C.")
]
Port = Annotated[
    int | None, option(min=0, max=65535, help="Port for --serve. Default: any that is free.")
]
Viewed = Annotated[
    str,
    typer.Argument(
        metavar="JOB|JOB/INSTANCE/SAMPLE|STORE",
        help="A job in a store or on the cluster, one of its episodes, or with --serve a store.",
        autocompletion=complete_address,
    ),
]


def view(
    address: Viewed,
    other: Other = None,
    output_file: HtmlFile = None,
    tokenizer: Tokenizer = None,
    *,
    serve: Served = False,
    port: Port = None,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Write a job or an episode as one HTML page: plots, turns, tokens, patch, tests.

    The page is self-contained: any browser opens it, from a file or from a bucket. With --serve
    it shows all jobs of a store, follows those that run, and searches their texts. Dumps of the
    Agentic Rollout Library are shown, too: a file, or a folder of them.

    swe-rollout view runs/demo/sqlparse-0.5.2/0 -O report.html

    swe-rollout view runs/before runs/after

    swe-rollout view --serve runs
    """
    addresses = [address] if other is None else [address, other]
    location = JobLocation(namespace, context)
    _require_meaning(address, output_file, port, serve=serve)
    if serve:
        if Path(address).is_file() and _dump_files(Path(address)):
            raise UsageError(f"{address} is a dump and no store", fix="leave --serve out")
        ending = InterruptMessages(stopping="the page is closed", stopped="")
        run_async(_serve(addresses, location, tokenizer, port or 0), on_note=say, messages=ending)
        return
    if page := _render_dumps(Path(address)):
        if other is not None:
            raise UsageError("dumps are not compared", fix=f"leave {other} out")
        name = Path(address).resolve().stem
    else:
        targets, page = run_async(_render(addresses, location, tokenizer), on_note=say)
        name = "-".join(target.name for target in targets)
    out = output_file or Path(f"{name}.html")
    require_page(out)
    with writing(out), out.open("w", encoding="utf-8") as file:
        file.writelines(page)
    say(f"{format_size(out.stat().st_size)}; open it in a browser")
    write_lines([str(out)])


def _require_meaning(
    address: str, output_file: Path | None, port: int | None, *, serve: bool
) -> None:
    if not address.strip():
        raise UsageError("the address is empty", fix="name a job or a store: runs/demo or runs")
    if serve and output_file is not None:
        raise UsageError(
            "--output-file has no meaning with --serve",
            why="a served page is not written",
            fix="leave one of them out",
        )
    if port is not None and not serve:
        raise UsageError("--port has a meaning with --serve only", fix="add --serve")


async def _render(
    addresses: list[str], location: JobLocation, tokenizer: str | None
) -> tuple[list[ViewTarget], Iterable[str]]:
    from swe_rollout.store.summary import JobTally
    from swe_rollout.viewer.page import Page
    from swe_rollout.viewer.token_text import find_texts

    targets = await find_targets(addresses, location)
    page = Page()
    jobs: dict[JobRef, PageJob] = {}
    for target in targets:
        store = target.open_store()
        plan = await store.plan(target.ref.job)
        if target.ref not in jobs:
            jobs[target.ref] = page.add_job(target.ref.job, str(target.ref), plan.job)
        job = jobs[target.ref]
        if target.episode is not None:
            trajectory = await store.read(target.episode)
            page.add(job, trajectory, find_texts(tokenizer, plan.job, trajectory.policy))
            continue
        tally = JobTally(store, target.ref.job)
        async for trajectory in tally.read_new():
            page.add(job, trajectory, find_texts(tokenizer, plan.job, trajectory.policy))
        summary = tally.counted(plan)
        write_left_out(summary.damaged, summary.strays)
        page.summarise(job, summary)
    return targets, page.parts(episodes=[each.episode for each in targets if each.episode])


def _dump_files(path: Path) -> list[Path]:
    """Return the dumps of the Agentic Rollout Library at a path; empty if it holds none."""
    from swe_rollout.export.library_dumps import SUFFIXES

    if path.suffix in SUFFIXES and path.is_file():
        return [path]
    if not path.is_dir() or local_job(f"{path}/") or job_named_wrongly(str(path)):
        return []
    folder = path / "trajectories" if (path / "trajectories").is_dir() else path
    return sorted(each for each in folder.iterdir() if each.suffix in SUFFIXES and each.is_file())


def _render_dumps(path: Path) -> Iterable[str]:
    """Return the page of all dumps at a path; empty if it is no file, and no folder with a dump."""
    from swe_rollout.export.library_dumps import read_dumps
    from swe_rollout.viewer.page import Page

    files = _dump_files(path)
    if not files:
        return ()
    page, left_out = Page(), list[UsageError]()
    job = page.add_job(files[0].resolve().parent.name, str(files[0].parent))
    episodes: list[EpisodeId] = []
    for trajectory in read_dumps(files, job=job.name, on_problem=left_out.append):
        page.add(job, trajectory, None)
        episodes.append(trajectory.episode)
    if not episodes:
        if path.is_dir():
            return ()
        raise left_out[0]
    for problem in left_out:
        say(f"left out: {problem.what}: {problem.why}")
    return page.parts(episodes=episodes if len(episodes) == 1 else ())


async def _serve(
    addresses: list[str], location: JobLocation, tokenizer: str | None, port: int
) -> None:
    from swe_rollout.viewer.served import PageServer
    from swe_rollout.viewer.served_jobs import ServedStore

    found = None if location.given else await find_store(addresses[0])
    if found is None:
        try:
            server = await _jobs_server(addresses, location, tokenizer)
        except UsageError as error:
            if "/" in addresses[0] or location.given:
                raise
            raise no_store(addresses[0]) from error
    elif len(addresses) > 1:
        raise UsageError(
            f"{addresses[0]} is a store, and a store is not compared",
            fix=f"name two of its jobs, or leave {addresses[1]} out",
        )
    else:
        address = addresses[0].rstrip("/")
        server = PageServer(address, store=ServedStore(found, address, tokenizer))
    async with server.serving(port):
        write_lines([server.address])
        if found is not None:
            has_none = "" if await found.jobs() else "; it has none yet"
            say(f"all jobs of {found.uri}, and those that are begun meanwhile{has_none}")
        say("open it in a browser on this machine; ^C ends it")
        await asyncio.Event().wait()


async def _jobs_server(
    addresses: list[str], location: JobLocation, tokenizer: str | None
) -> PageServer:
    """Return the server of one or two jobs or episodes."""
    from swe_rollout.viewer.page import PageJob, start_at, tools_of
    from swe_rollout.viewer.served import PageServer
    from swe_rollout.viewer.served_jobs import ServedJob

    targets = await find_targets(addresses, location)
    jobs: dict[JobRef, ServedJob] = {}
    for target in targets:
        if target.ref not in jobs:
            store, name = target.open_store(), target.ref.job
            job = (await store.plan(name)).job
            page = PageJob(name, str(target.ref), tools=tools_of(job), complete=False)
            jobs[target.ref] = ServedJob(store, page, job, number=len(jobs), tokenizer=tokenizer)
    start = start_at([each.episode for each in targets if each.episode], jobs=len(jobs))
    return PageServer(" · ".join(ref.job for ref in jobs), list(jobs.values()), start=start)
