"""Run, on the cluster: `launch`, and what ends or halts a job: `cancel`, `suspend`, `resume`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from swe_rollout.cli.options import (
    Context,
    DisplayKind,
    File,
    Form,
    JobName,
    Name,
    Namespace,
    OutputFormat,
    Sets,
    Shown,
    SkipBadRows,
    StoreUri,
    option,
)

if TYPE_CHECKING:
    from pathlib import Path

    from swe_rollout.cli.address import Place
    from swe_rollout.cli.interrupt import Words
    from swe_rollout.cluster.job_objects import JobObject
    from swe_rollout.spec.job import RolloutJob

Detach = Annotated[bool, option("--detach", help="Don't follow it.")]
DryRun = Annotated[
    bool, option("--dry-run", help="Check it here and on the cluster; make nothing.")
]
NoWait = Annotated[bool, option("--no-wait", help="Don't wait until its pods are gone.")]


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
    skip_bad_rows: SkipBadRows = False,
    display: Shown = DisplayKind.AUTO,
    output: Form = OutputFormat.TABLE,
) -> None:
    """Launch a job on the cluster and follow it. ^C leaves it running.

    Launched again it is the same job, changed to what the file says. Exit 1 when it fails.

    swe-rollout launch job.yaml --set spec.samples=8

    swe-rollout launch job.yaml -n rollouts --detach
    """
    from swe_rollout.cli.address import Place
    from swe_rollout.cli.interrupt import run_async
    from swe_rollout.cli.output import say, write_json, write_lines
    from swe_rollout.cli.run import overrides_of
    from swe_rollout.spec.load import load_job

    overrides = overrides_of(sets, store=store, name=name, skip_bad_rows=skip_bad_rows)
    place = Place(namespace, context)
    job = load_job(file, overrides)
    work = _submit(job, file.absolute().parent, place, dry_run=dry_run)
    sent = run_async(work, on_note=say)
    if detach or dry_run:
        if output is OutputFormat.JSON:
            write_json({"namespace": sent.namespace, "name": sent.name, "dry_run": dry_run})
        else:
            write_lines([f"rolloutjob/{sent.name}{' (dry run)' if dry_run else ''}"])
        if not dry_run:
            say(f"follow it with: swe-rollout watch {sent.namespace}/{sent.name}")
        return
    follow(sent, place, display=display, output=output)


def follow(job: JobObject, place: Place, *, display: DisplayKind, output: OutputFormat) -> None:
    """Show the job until it is over, then its figures on stdout; ^C only leaves it."""
    from swe_rollout.cli.follow import follow_to_the_end
    from swe_rollout.cli.interrupt import run_async
    from swe_rollout.cli.job_status import write_job
    from swe_rollout.cli.output import say, talk_console, write_lines
    from swe_rollout.launcher.outcome import summary_of
    from swe_rollout.launcher.remote import open_jobs

    async def work() -> JobObject:
        async with open_jobs(place.context) as jobs:
            return await follow_to_the_end(jobs, job, display=display, console=talk_console())

    ended = run_async(work(), on_note=say, words=_detached(job))
    if output is OutputFormat.JSON:
        write_lines([summary_of(ended).to_json().decode()])
    else:
        write_job(ended)


def cancel(
    job: JobName, namespace: Namespace = None, context: Context = None, *, no_wait: NoWait = False
) -> None:
    """End a job on the cluster: its pods go, what was committed stays in the store.

    swe-rollout cancel demo

    swe-rollout cancel rollouts/demo --no-wait
    """
    from swe_rollout.cli.address import Place
    from swe_rollout.cli.interrupt import run_async
    from swe_rollout.cli.output import say, write_lines

    found = run_async(_cancel(job, Place(namespace, context), wait=not no_wait), on_note=say)
    write_lines([f"rolloutjob/{found.name}"])
    say(f"what was committed stays: swe-rollout status {found.spec.store.uri}/{found.name}")


def suspend(job: JobName, namespace: Namespace = None, context: Context = None) -> None:
    """Halt a job on the cluster: its sandboxes end, what is committed stays.

    swe-rollout suspend demo
    """
    from swe_rollout.cli.address import Place
    from swe_rollout.cli.output import say

    found = _suspended(job, Place(namespace, context), suspended=True)
    say(f"go on with: swe-rollout resume {found.namespace}/{found.name}")


def resume(job: JobName, namespace: Namespace = None, context: Context = None) -> None:
    """Let a suspended job go on; committed episodes are not repeated.

    swe-rollout resume demo
    """
    from swe_rollout.cli.address import Place

    _suspended(job, Place(namespace, context), suspended=False)


def _suspended(job: str, place: Place, *, suspended: bool) -> JobObject:
    from swe_rollout.cli.address import job_name
    from swe_rollout.cli.interrupt import run_async
    from swe_rollout.cli.output import say, write_lines
    from swe_rollout.launcher.remote import open_jobs

    wanted = job_name(job, place)

    async def work() -> JobObject:
        async with open_jobs(place.context) as jobs:
            namespace = wanted.namespace or jobs.namespace
            return await jobs.suspend(namespace, wanted.name, suspended=suspended)

    found = run_async(work(), on_note=say)
    write_lines([f"rolloutjob/{found.name}"])
    return found


def _detached(job: JobObject) -> Words:
    from swe_rollout.cli.interrupt import Words

    name = f"{job.namespace}/{job.name}"
    return Words(f"detached; the job goes on. Stop it with: swe-rollout cancel {name}", "")


async def _submit(job: RolloutJob, base_dir: Path, place: Place, *, dry_run: bool) -> JobObject:
    from swe_rollout.cli.output import say
    from swe_rollout.launcher.remote import open_jobs, submit

    async with open_jobs(place.context) as jobs:
        return await submit(
            jobs,
            job,
            namespace=place.namespace,
            base_dir=base_dir,
            on_note=say,
            dry_run=dry_run,
        )


async def _cancel(address: str, place: Place, *, wait: bool) -> JobObject:
    from swe_rollout.cli.address import job_name
    from swe_rollout.cli.output import say
    from swe_rollout.launcher import remote
    from swe_rollout.launcher.launched import CANCEL_S

    wanted = job_name(address, place)
    async with remote.open_jobs(place.context) as jobs:
        job = await jobs.get(wanted.namespace or jobs.namespace, wanted.name)
        if wait:
            say("waiting until its pods are gone; ^C leaves that to the cluster")
            await remote.cancel(jobs, job, timeout_s=CANCEL_S)
        else:
            await jobs.delete(job.namespace, job.name, uid=job.metadata.uid)
    return job
