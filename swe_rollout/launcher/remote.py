"""Submit, follow and cancel jobs on a cluster, asynchronously.

`LaunchedJob` and the command line are thin layers over it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

from tenacity import AsyncRetrying, retry_if_result, wait_fixed

from swe_rollout.cluster.job_objects import JobObject
from swe_rollout.cluster.jobs import Jobs
from swe_rollout.errors import UsageError
from swe_rollout.launcher.job_result import JobFailedError, JobTimeoutError, is_complete
from swe_rollout.launcher.uploads import (
    LocalFile,
    LocalRows,
    local_rows,
    name_files,
    quarantine_in_file,
)
from swe_rollout.spec.dataset import SwebenchDataset
from swe_rollout.spec.job import RolloutJob
from swe_rollout.spec.sandbox import PodSandbox, SandboxSpec

_POLL_S = 0.5


@asynccontextmanager
async def open_jobs(context: str | None = None) -> AsyncIterator[Jobs]:
    """Connect to the jobs on the context's cluster while the block runs."""
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
    files: Sequence[LocalFile] = (),
    dry_run: bool = False,
) -> JobObject:
    """Create or update the job on the cluster; return the object that the API server stored.

    Rows in a local file and user code in `files` are written to the store first. Raises UsageError
    for a job that no cluster can carry out, and the errors of `Jobs.apply`.
    """
    target = namespace or job.metadata.namespace or jobs.namespace
    submitted = for_cluster(job, on_note=on_note)
    swebench, store = submitted.spec.dataset.swebench, submitted.spec.store.uri
    rows = await local_rows(swebench, base_dir=base_dir, store_uri=store) if swebench else None
    if rows is not None:
        submitted = with_dataset(submitted, rows)
    uri = submitted.spec.dataset.quarantine
    bad_rows = uri and quarantine_in_file(uri, base_dir=base_dir, store_uri=store)
    if bad_rows:
        named = submitted.spec.dataset.model_copy(update={"quarantine": bad_rows.uri})
        submitted = submitted.with_spec(dataset=named)
    for what, found in (("rows", rows), ("quarantine", bad_rows)):
        if found and not dry_run:
            await found.put()
            on_note(f"{what} written to {found.uri}")
    submitted = name_files(submitted, files)
    if not dry_run:
        for file in files:
            await file.put(store)
    return await jobs.apply(target, submitted, dry_run=dry_run)


async def wait_until_complete(
    jobs: Jobs,
    job: JobObject,
    *,
    timeout_s: float | None,
    on_state: Callable[[JobObject], None] | None = None,
) -> JobObject:
    """Wait until every episode is committed, passing on each state; return the job.

    Raises JobFailedError if it fails or is deleted, JobRefusedError if the operator can't carry it
    out, JobTimeoutError after `timeout_s`.
    """
    try:
        async with asyncio.timeout(timeout_s):
            async with aclosing(follow(jobs, job)) as states:
                async for found in states:
                    if on_state is not None:
                        on_state(found)
                    if is_complete(found):
                        return found
    except TimeoutError as error:
        raise JobTimeoutError(
            f"RolloutJob/{job.name} has not ended yet",
            why=f"waited for {timeout_s:g} s",
            fix="wait again, or longer; the job continues",
        ) from error
    raise deleted_error(job)


async def follow(jobs: Jobs, job: JobObject) -> AsyncGenerator[JobObject, None]:
    """Yield the job now and after each change, until it is deleted or replaced."""
    async with aclosing(jobs.follow(job.namespace, job.name)) as states:
        async for found in states:
            if found.metadata.uid != job.metadata.uid:
                return
            yield found


async def cancel(jobs: Jobs, job: JobObject, *, timeout_s: float | None) -> None:
    """Delete the job and wait until it and its pods are gone; committed episodes stay.

    Raises JobTimeoutError if it still exists after `timeout_s`.
    """
    await jobs.delete(job.namespace, job.name, uid=job.metadata.uid)
    try:
        async with asyncio.timeout(timeout_s):
            again = AsyncRetrying(retry=retry_if_result(bool), wait=wait_fixed(_POLL_S))
            await again(_exists, jobs, job)
    except TimeoutError as error:
        raise JobTimeoutError(
            f"RolloutJob/{job.name} is being deleted, but still exists",
            why=f"its pods did not terminate within {timeout_s:g} s",
            fix="look for a node that does not respond: kubectl get pods,nodes",
        ) from error


async def _exists(jobs: Jobs, job: JobObject) -> bool:
    found = await jobs.find(job.namespace, job.name)
    return found is not None and found.metadata.uid == job.metadata.uid


def deleted_error(job: JobObject) -> JobFailedError:
    """Return the error for a job that was deleted while it was being followed."""
    return JobFailedError(
        f"RolloutJob/{job.name} was deleted before it completed",
        why="somebody cancelled it, or its time to live expired",
        fix=f"`swe-rollout status {job.spec.store.uri}/{job.name}` shows the committed episodes; "
        "launch the job again to continue from there",
    )


def with_dataset(job: RolloutJob, rows: LocalRows) -> RolloutJob:
    """Return the job with these rows as its dataset, keeping its selection of instances."""
    before = job.spec.dataset.swebench or SwebenchDataset(uri=rows.uri)
    swebench = before.model_copy(update={"uri": rows.uri, "split": ""})
    changes = {"swebench": swebench, "release_pairs": None}
    return job.with_spec(dataset=job.spec.dataset.model_copy(update=changes))


def for_cluster(job: RolloutJob, *, on_note: Callable[[str], None]) -> RolloutJob:
    """Return the job with pod sandboxes. Raises UsageError if no cluster can carry it out."""
    if job.spec.store.uri.startswith("file://"):
        raise UsageError(
            "a job on a cluster needs a store that all its pods can reach",
            why=f"spec.store.uri is {job.spec.store.uri}, a folder on this machine",
            fix="--set spec.store.uri=s3://bucket/prefix, or run it here: swe-rollout run",
        )
    if job.spec.sandbox.pod is not None or job.spec.sandbox.backend is not None:
        return job
    if "sandbox" in job.spec.model_fields_set:
        on_note(
            "spec.sandbox.local and .kodo are for runs in one process; on the cluster, sandboxes "
            "are pods"
        )
    return job.with_spec(sandbox=SandboxSpec(pod=PodSandbox()))
