"""Jobs on a cluster, asynchronously: sent, waited for, ended. The Python face and the command line
are thin faces over it.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

from swe_rollout.cluster.jobs import Jobs
from swe_rollout.errors import SpecError, UsageError
from swe_rollout.launcher import dataset_object
from swe_rollout.launcher.outcome import JobFailedError, JobTimeoutError, finished
from swe_rollout.spec.job import PodSandbox, SandboxSpec, SwebenchDataset
from swe_rollout.spec.pod_template import template_problems

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable
    from pathlib import Path

    from swe_rollout.cluster.job_objects import JobObject
    from swe_rollout.launcher.dataset_object import DatasetObject
    from swe_rollout.spec.job import RolloutJob


@asynccontextmanager
async def open_jobs(context: str | None = None) -> AsyncIterator[Jobs]:
    """The jobs of the context's cluster, while the block runs."""
    jobs = await Jobs.connect(context)
    try:
        yield jobs
    finally:
        await jobs.aclose()


async def submit(
    jobs: Jobs,
    job: RolloutJob,
    *,
    namespace: str | None,
    base_dir: Path,
    on_note: Callable[[str], None],
    dry_run: bool = False,
) -> JobObject:
    """The job as it is on the cluster now. Sent again, it is the same job and goes on.

    What only this machine has (rows in a file) goes to the store first. Raises UsageError for what
    no cluster could carry out, and what `Jobs.apply` raises.
    """
    target = namespace or job.metadata.namespace or jobs.namespace
    sent = for_cluster(job, on_note=on_note)
    rows = _local_rows(sent, base_dir)
    if rows is not None:
        sent = with_dataset(sent, rows)
        if not dry_run:
            await rows.put()
            on_note(f"rows are at {rows.uri}")
    return await jobs.apply(target, sent, dry_run=dry_run)


async def until_finished(jobs: Jobs, job: JobObject, *, timeout_s: float | None) -> JobObject:
    """The job when every episode is committed.

    Raises JobFailedError when it fails or is deleted, JobRefusedError when the operator can't carry
    it out, JobTimeoutError after `timeout_s`.
    """
    try:
        async with asyncio.timeout(timeout_s):
            async with aclosing(follow(jobs, job)) as states:
                async for found in states:
                    if finished(found):
                        return found
    except TimeoutError as error:
        raise JobTimeoutError(
            f"RolloutJob/{job.name} is not over",
            why=f"it was waited for {timeout_s:g} s",
            fix="wait again, or longer; the job goes on",
        ) from error
    raise deleted(job)


async def follow(jobs: Jobs, job: JobObject) -> AsyncGenerator[JobObject, None]:
    """This very job now and after each change, until it is deleted."""
    async with aclosing(jobs.follow(job.namespace, job.name)) as states:
        async for found in states:
            if found.metadata.uid != job.metadata.uid:
                return
            yield found


async def cancel(jobs: Jobs, job: JobObject, *, timeout_s: float | None) -> None:
    """End the job and wait until it is gone with its pods; what was committed stays.

    Raises JobTimeoutError when it is still there after `timeout_s`.
    """
    await jobs.delete(job.namespace, job.name, uid=job.metadata.uid)
    try:
        async with asyncio.timeout(timeout_s):
            while (found := await jobs.find(job.namespace, job.name)) is not None:
                if found.metadata.uid != job.metadata.uid:
                    return
                await asyncio.sleep(0.5)
    except TimeoutError as error:
        raise JobTimeoutError(
            f"RolloutJob/{job.name} is being deleted, and still there",
            why=f"its pods did not go within {timeout_s:g} s, or no operator runs",
            fix="kubectl get pods -n swe-rollout-system shows the operator",
        ) from error


def deleted(job: JobObject) -> JobFailedError:
    """What to say of a job that went away while someone followed it."""
    return JobFailedError(
        f"RolloutJob/{job.name} was deleted before it was over",
        why="someone cancelled it, or its time to live was over",
        fix=f"`swe-rollout status {job.spec.store.uri}/{job.name}` tells what was committed; "
        "launched again, it goes on from there",
    )


def with_dataset(job: RolloutJob, rows: DatasetObject) -> RolloutJob:
    """The job over those rows; what it includes and excludes stays."""
    found = job.spec.dataset.model_copy(
        update={"swebench": SwebenchDataset(uri=rows.uri), "release_pairs": None}
    )
    spec = job.spec.model_copy(update={"dataset": found})
    return job.model_copy(update={"spec": spec})


def for_cluster(job: RolloutJob, *, on_note: Callable[[str], None]) -> RolloutJob:
    """The job with pods for sandboxes; UsageError for what no cluster could carry out."""
    if job.spec.store.uri.startswith("file://"):
        raise UsageError(
            "a job on a cluster needs a store that all its pods reach",
            why=f"spec.store.uri is {job.spec.store.uri}: a folder of this machine",
            fix="--set spec.store.uri=s3://bucket/prefix, or run it here: swe-rollout run",
        )
    if (pod := job.spec.sandbox.pod) is not None:
        if problems := template_problems(pod.template):
            raise SpecError("the pod template asks for what a sandbox can't have", problems)
        return job
    if "sandbox" in job.spec.model_fields_set:
        on_note(
            "spec.sandbox.local and .kodo are for runs in one process: on the cluster, sandboxes "
            "are pods"
        )
    spec = job.spec.model_copy(update={"sandbox": SandboxSpec(pod=PodSandbox())})
    return job.model_copy(update={"spec": spec})


def _local_rows(job: RolloutJob, base_dir: Path) -> DatasetObject | None:
    swebench = job.spec.dataset.swebench
    if swebench is None:
        return None
    return dataset_object.of_file(swebench.uri, base_dir=base_dir, store_uri=job.spec.store.uri)
