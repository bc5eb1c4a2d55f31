"""`launch` and `watch`: send a job to the cluster, and follow it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from swe_rollout.cli.interrupt import InterruptMessages, run_async
from swe_rollout.cli.job_address import JobLocation, find_either
from swe_rollout.cli.job_file import overrides_of
from swe_rollout.cli.job_tables import write_result
from swe_rollout.cli.options import (
    Context,
    DisplayKind,
    File,
    Form,
    JobAddress,
    Name,
    Namespace,
    OutputFormat,
    Sets,
    Shown,
    SkipBadRows,
    StoreUri,
    WithFiles,
    option,
)
from swe_rollout.cli.output import say, stderr_console, write_data, write_lines
from swe_rollout.store.layout import JobRef

if TYPE_CHECKING:
    from swe_rollout.cluster.job_objects import JobObject
    from swe_rollout.launcher.uploads import LocalFile
    from swe_rollout.spec.job import RolloutJob

Detach = Annotated[bool, option("--detach", help="Return at once instead of following the job.")]
DryRun = Annotated[
    bool, option("--dry-run", help="Check the job here and on the cluster; create nothing.")
]


def launch(
    file: File,
    namespace: Namespace = None,
    context: Context = None,
    store: StoreUri = None,
    name: Name = None,
    *,
    sets: Sets = None,
    detach: Detach = False,
    dry_run: DryRun = False,
    with_files: WithFiles = None,
    skip_bad_rows: SkipBadRows = False,
    display: Shown = DisplayKind.AUTO,
    output: Form = OutputFormat.TABLE,
) -> None:
    """Launch a job on the cluster and follow it. ^C leaves it running.

    Launching the same job again updates it to the file. Exit 1 when the job fails.

    swe-rollout launch job.yaml --set spec.samples=8

    swe-rollout launch job.yaml -n rollouts --detach
    """
    from swe_rollout.cli.job_display import follow_job
    from swe_rollout.launcher.uploads import pack_bundles, read_file
    from swe_rollout.spec.load import load_job

    overrides = overrides_of(sets, store=store, name=name, skip_bad_rows=skip_bad_rows)
    location = JobLocation(namespace, context)
    job = load_job(file, overrides)
    files = [read_file(path) for path in with_files or ()]
    base_dir = file.absolute().parent
    job, bundles = pack_bundles(job, base_dir=base_dir)
    work = _submit(job, [*files, *bundles], base_dir, location, dry_run=dry_run)
    submitted = run_async(work, on_note=say)
    if not (detach or dry_run):
        follow_job(submitted, location, display=display, output=output)
        return
    if output.is_data:
        shown = {"namespace": submitted.namespace, "name": submitted.name, "dry_run": dry_run}
        write_data(shown, output)
    else:
        write_lines([f"rolloutjob/{submitted.name}{' (dry run)' if dry_run else ''}"])
    if not dry_run:
        say(f"follow it with: swe-rollout watch {submitted.namespace}/{submitted.name}")


def watch(
    job: JobAddress,
    namespace: Namespace = None,
    context: Context = None,
    *,
    display: Shown = DisplayKind.AUTO,
    output: Form = OutputFormat.TABLE,
) -> None:
    """Follow a job until it completes or fails.

    A job in a store is followed through the records that its workers, or another process here,
    commit; ^C does not affect it. Exit 1 when a job on the cluster fails.

    swe-rollout watch demo

    swe-rollout watch runs/demo --display plain
    """
    from swe_rollout.cli.job_display import follow_job

    location = JobLocation(namespace, context)
    found = asyncio.run(find_either(job, location))
    if isinstance(found, JobRef):
        _watch_stored(found, display=display, output=output)
    else:
        follow_job(found, location, display=display, output=output)


def _watch_stored(ref: JobRef, *, display: DisplayKind, output: OutputFormat) -> None:
    from swe_rollout.cli.stored_display import follow_stored

    messages = InterruptMessages("detached; whatever runs the job goes on", "")
    work = follow_stored(ref, display=display, console=stderr_console())
    write_result(run_async(work, on_note=say, messages=messages), output)


async def _submit(
    job: RolloutJob,
    files: Sequence[LocalFile],
    base_dir: Path,
    location: JobLocation,
    *,
    dry_run: bool,
) -> JobObject:
    from swe_rollout.launcher.remote import open_jobs, submit

    async with open_jobs(location.context) as jobs:
        return await submit(
            jobs,
            job,
            namespace=location.namespace,
            base_dir=base_dir,
            on_note=say,
            files=files,
            dry_run=dry_run,
        )
