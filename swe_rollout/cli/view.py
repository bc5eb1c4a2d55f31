"""`view`: a job or an episode as one HTML page."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from swe_rollout.cli.files import require_page, writing
from swe_rollout.cli.interrupt import InterruptMessages, run_async
from swe_rollout.cli.job_address import JobLocation, ViewTarget, find_targets
from swe_rollout.cli.job_tables import write_left_out
from swe_rollout.cli.options import Context, Namespace, StoredAddress, complete_address, option
from swe_rollout.cli.output import say, write_lines
from swe_rollout.store.layout import JobRef

if TYPE_CHECKING:
    from swe_rollout.store.store import Store
    from swe_rollout.viewer.page import PageJob
    from swe_rollout.viewer.token_text import TokenTexts

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
Port = Annotated[int, option(min=0, max=65535, help="Port for --serve; 0: any that is free.")]


def view(
    address: StoredAddress,
    other: Other = None,
    output_file: HtmlFile = None,
    tokenizer: Tokenizer = None,
    *,
    serve: Served = False,
    port: Port = 0,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Write a job or an episode as one HTML page: plots, turns, tokens, patch, tests.

    The page is self-contained: any browser opens it, from a file or from a bucket.

    swe-rollout view runs/demo/sqlparse-0.5.2/0 -O report.html

    swe-rollout view runs/before runs/after --serve
    """
    addresses = [address] if other is None else [address, other]
    location = JobLocation(namespace, context)
    if serve:
        ending = InterruptMessages(stopping="the page is closed", stopped="")
        run_async(_serve(addresses, location, tokenizer, port), on_note=say, messages=ending)
        return
    targets, page = run_async(_render(addresses, location, tokenizer), on_note=say)
    out = output_file or Path(f"{'-'.join(target.name for target in targets)}.html")
    require_page(out)
    with writing(out):
        out.write_text(page, encoding="utf-8")
    say(f"{out.stat().st_size / 1024:.0f} KiB; open it in a browser")
    write_lines([str(out)])


async def _render(
    addresses: list[str], location: JobLocation, tokenizer: str | None
) -> tuple[list[ViewTarget], str]:
    from swe_rollout.store.summary import JobTally
    from swe_rollout.viewer.page import Page

    targets = await find_targets(addresses, location)
    page = Page()
    jobs: dict[JobRef, PageJob] = {}
    for target in targets:
        opened = await _open(target, tokenizer)
        if target.ref not in jobs:
            jobs[target.ref] = page.add_job(target.ref.job, str(target.ref), opened.plan)
        job = jobs[target.ref]
        if target.episode is not None:
            trajectory = await opened.store.read(target.episode)
            page.add(job, trajectory, opened.texts(trajectory.policy))
            continue
        tally = JobTally(opened.store, target.ref.job)
        async for trajectory in tally.read_new():
            page.add(job, trajectory, opened.texts(trajectory.policy))
        summary = await tally.summary()
        write_left_out(summary.damaged, summary.strays)
        page.summarise(job, summary)
    return targets, page.html(episodes=[each.episode for each in targets if each.episode])


async def _serve(
    addresses: list[str], location: JobLocation, tokenizer: str | None, port: int
) -> None:
    from swe_rollout.export.job_comparison import JobSide
    from swe_rollout.viewer.page import PageJob, start_at, tools_of
    from swe_rollout.viewer.served import PageServer, ServedJob

    targets = await find_targets(addresses, location)
    jobs: dict[JobRef, ServedJob] = {}
    for target in targets:
        if target.ref not in jobs:
            opened = await _open(target, tokenizer)
            name, tools = target.ref.job, tools_of(opened.plan)
            page = PageJob(name, str(target.ref), [], tools=tools, complete=False)
            side = JobSide(opened.plan)
            jobs[target.ref] = ServedJob(
                opened.store, page, opened.texts, number=len(jobs), side=side
            )
    start = start_at([each.episode for each in targets if each.episode], jobs=len(jobs))
    title = " · ".join(ref.job for ref in jobs)
    server = PageServer(title, list(jobs.values()), start=start)
    async with server.serving(port):
        write_lines([server.address])
        say("open it in a browser on this machine; ^C ends it")
        await asyncio.Event().wait()


@dataclass(slots=True)
class _Opened:
    """A job's store, its resolved spec, and the vocabulary of its tokens."""

    store: Store
    plan: dict[str, Any]
    tokenizer: str | None
    _texts: dict[str, TokenTexts | None] = field(default_factory=dict)

    def texts(self, policy: str) -> TokenTexts | None:
        """Return the decoder for a policy's tokens, if this machine has it."""
        from swe_rollout.viewer.token_text import find_texts

        if policy not in self._texts:
            self._texts[policy] = find_texts(self.tokenizer, self.plan, policy)
        return self._texts[policy]


async def _open(target: ViewTarget, tokenizer: str | None) -> _Opened:
    store = target.open_store()
    plan = await store.plan(target.ref.job)
    return _Opened(store, plan.job, tokenizer)
