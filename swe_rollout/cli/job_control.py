"""`cancel`, `suspend` and `resume`: control a job on the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from swe_rollout.cli.interrupt import run_async
from swe_rollout.cli.job_address import JobLocation, open_job
from swe_rollout.cli.options import Context, JobName, Namespace, option
from swe_rollout.cli.output import say, write_lines

if TYPE_CHECKING:
    from swe_rollout.cluster.job_objects import JobObject

NoWait = Annotated[bool, option("--no-wait", help="Don't wait until the job's pods are gone.")]


def cancel(
    job: JobName, namespace: Namespace = None, context: Context = None, *, no_wait: NoWait = False
) -> None:
    """Cancel a job on the cluster: its pods are deleted, committed episodes stay in the store.

    swe-rollout cancel demo

    swe-rollout cancel rollouts/demo --no-wait
    """
    cancelled = run_async(
        _cancel(job, JobLocation(namespace, context), wait=not no_wait), on_note=say
    )
    write_lines([f"rolloutjob/{cancelled.name}"])
    store = f"{cancelled.spec.store.uri}/{cancelled.name}"
    say(f"committed episodes stay; list them with: swe-rollout status {store}")


def suspend(job: JobName, namespace: Namespace = None, context: Context = None) -> None:
    """Suspend a job on the cluster: its sandboxes end, committed episodes stay.

    swe-rollout suspend demo

    swe-rollout suspend demo -n rollouts
    """
    found = _set_suspended(job, JobLocation(namespace, context), suspended=True)
    say(f"continue with: swe-rollout resume {found.namespace}/{found.name}")


def resume(job: JobName, namespace: Namespace = None, context: Context = None) -> None:
    """Resume a suspended job; committed episodes are not repeated.

    swe-rollout resume demo

    swe-rollout resume rollouts/demo
    """
    _set_suspended(job, JobLocation(namespace, context), suspended=False)


async def _cancel(address: str, location: JobLocation, *, wait: bool) -> JobObject:
    from swe_rollout.launcher import remote
    from swe_rollout.launcher.launched_job import CANCEL_S

    async with open_job(address, location) as (jobs, job):
        if wait:
            say("waiting until the job's pods are gone; ^C leaves the cleanup to the cluster")
            await remote.cancel(jobs, job, timeout_s=CANCEL_S)
        else:
            await jobs.delete(job.namespace, job.name, uid=job.metadata.uid)
    return job


def _set_suspended(address: str, location: JobLocation, *, suspended: bool) -> JobObject:
    async def work() -> JobObject:
        async with open_job(address, location) as (jobs, job):
            return await jobs.set_suspended(job.namespace, job.name, suspended=suspended)

    found = run_async(work(), on_note=say)
    write_lines([f"rolloutjob/{found.name}"])
    return found
