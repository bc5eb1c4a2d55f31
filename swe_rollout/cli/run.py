"""`run`: roll out a whole job in this process."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from swe_rollout.cli.interrupt import run_async
from swe_rollout.cli.job_file import in_sandbox, overrides_of
from swe_rollout.cli.job_tables import say_failures, write_left_out, write_summary
from swe_rollout.cli.options import (
    DisplayKind,
    File,
    Form,
    Join,
    MetricsAt,
    Name,
    OutputFormat,
    SandboxChoice,
    Sets,
    Shown,
    SkipBadRows,
    StoreUri,
    WithFiles,
    option,
)
from swe_rollout.cli.output import say, stderr_console, write_data
from swe_rollout.cli.wrong_address import address_here
from swe_rollout.errors import SweRolloutError
from swe_rollout.store.layout import JobRef
from swe_rollout.text.escaping import one_line

if TYPE_CHECKING:
    from swe_rollout.launcher.uploads import LocalFile
    from swe_rollout.spec.job import RolloutJob
    from swe_rollout.worker.job import RunSummary

RerunDamaged = Annotated[
    bool,
    option("--rerun-damaged", help="Move records that can't be read aside, and run them again."),
]
RerunMasked = Annotated[
    bool,
    option(
        "--rerun-masked",
        help="Run masked episodes again, also with changed files of --with.",
    ),
]


def run(
    file: File,
    sandbox: SandboxChoice = None,
    store: StoreUri = None,
    name: Name = None,
    sets: Sets = None,
    *,
    with_files: WithFiles = None,
    skip_bad_rows: SkipBadRows = False,
    rerun_damaged: RerunDamaged = False,
    rerun_masked: RerunMasked = False,
    join: Join = False,
    display: Shown = DisplayKind.AUTO,
    metrics: MetricsAt = "",
    output: Form = OutputFormat.TABLE,
) -> None:
    """Run a job in this process. Episodes committed by an earlier run are not repeated.

    A job may grow: run it with more samples or other tasks, and only the new episodes run. Exit 0
    when every episode is committed. ^C stops the sandboxes; run the same command again to
    continue.

    swe-rollout run job.yaml

    swe-rollout run job.yaml --set spec.samples=8 --store s3://rollouts -o json

    swe-rollout run job.yaml --with my_tools.py
    """
    from swe_rollout.launcher.uploads import name_files, pack_bundles, read_file
    from swe_rollout.spec.load import load_job

    overrides = overrides_of(sets, store=store, name=name, skip_bad_rows=skip_bad_rows)
    job = load_job(file, overrides)
    ref = JobRef(job.spec.store.uri, job.metadata.name)
    _say_what_begins(file, job, ref)
    if sandbox is not None:
        job = in_sandbox(job, sandbox)
    files = [read_file(path) for path in with_files or ()]
    job, bundles = pack_bundles(name_files(job, files), base_dir=file.absolute().parent)
    work = roll_out(
        job,
        [*files, *bundles],
        base_dir=file.absolute().parent,
        display=display,
        rerun_damaged=rerun_damaged,
        rerun_masked=rerun_masked,
        join=join,
        metrics=metrics,
    )
    finish(work, ref, output)


def _say_what_begins(file: Path, job: RolloutJob, ref: JobRef) -> None:
    """Say it before anything that takes long: imports, a tokenizer, a dataset of a hub."""
    policy, target = _describe_policy(job), address_here(ref)
    say(one_line(f"{file}: {job.spec.samples} × each task, {policy}, to {target}"))


def finish(work: Coroutine[object, object, RunSummary], ref: JobRef, output: OutputFormat) -> None:
    """Run a job to its end and print its state and address. Exit with 1 if any episode is left."""
    found = run_async(work, on_note=say)
    if output.is_data:
        write_data(json.loads(found.to_json()), output)
    else:
        write_summary(found.job, output)
    write_left_out(found.job.damaged, found.job.strays)
    say(str(found))
    _say_where(ref)
    if found.left:
        raise typer.Exit(1)


def _say_where(ref: JobRef) -> None:
    address = shlex.quote(address_here(ref))
    say(f"the records are in {address}; next: swe-rollout view {address}")


async def roll_out(
    job: RolloutJob,
    files: Sequence[LocalFile],
    *,
    base_dir: Path,
    display: DisplayKind,
    rerun_damaged: bool = False,
    rerun_masked: bool = False,
    join: bool = False,
    metrics: str = "",
) -> RunSummary:
    """Upload the job's files to its store, and run it in this process with a display.

    `metrics` is the address on which they are served; empty for none.
    """
    from swe_rollout.cli.run_display import open_run_display
    from swe_rollout.events import Events
    from swe_rollout.live.progress import LiveTitle
    from swe_rollout.telemetry.setup import observing
    from swe_rollout.worker import job as worker

    for each in files:
        await each.put(job.spec.store.uri)
    title = LiveTitle(
        f"rolloutjob/{job.metadata.name}",
        (_describe_policy(job),),
        group_size=lambda _: job.spec.samples,
    )
    async with (
        observing(metrics) as observer,
        open_run_display(display, title=title, console=stderr_console()) as progress,
    ):
        try:
            return await worker.run_job(
                job,
                base_dir=base_dir,
                publish=Events(progress, observer),
                on_note=say,
                rerun_damaged=rerun_damaged,
                rerun_masked=rerun_masked,
                join=join,
            )
        except (SweRolloutError, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError):
                say("committed episodes stay; run the same command again to continue")
            say_failures(progress.failure_groups.ranked())
            if progress.planned_episodes:
                _say_where(JobRef(job.spec.store.uri, job.metadata.name))
            raise


def _describe_policy(job: RolloutJob) -> str:
    policy = job.spec.policy
    if policy.sglang is not None:
        return f"sglang @ {policy.sglang.address}"
    if (api := policy.openai or policy.anthropic) is not None:
        return f"{api.model} @ {api.url}"
    if policy.transformers is not None:
        return f"transformers {policy.transformers.model}"
    if (own := policy.engine or policy.chat) is not None:
        return own.use
    if policy.scripted is None:
        return ""
    return f"scripted {'turns' if policy.scripted.turns else ','.join(policy.scripted.scenarios)}"
