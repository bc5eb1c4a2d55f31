"""Read, apply, change, delete and follow the RolloutJobs of a cluster on a user's behalf.

Refusals become errors with a fix, since they are shown in a terminal or a notebook. The launcher,
the command line and workers use this module.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from itertools import chain
from typing import Self

import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random

from swe_rollout.cluster.api_error import TRANSIENT, ApiError
from swe_rollout.cluster.client import FIELD_MANAGER, ClusterClient
from swe_rollout.cluster.job_objects import ROLLOUT_JOBS, JobObject
from swe_rollout.cluster.objects import EVENTS, PODS, KubernetesEvent, Pod
from swe_rollout.cluster.responses import Change
from swe_rollout.cluster.transport import SPREAD
from swe_rollout.errors import PrerequisiteError, SweRolloutError, UnreachableError, UsageError
from swe_rollout.spec.job import API_VERSION, KIND, RolloutJob
from swe_rollout.spec.status import JOB_LABEL, ROLE_LABEL

log = structlog.get_logger()

RETRY_TIMEOUT_S = 15.0
"""Short, because users wait for the response."""
_PAUSE_S = 1.0
"""The longest pause before an interrupted watch is resumed."""


class Jobs:
    """The RolloutJobs of one cluster. Safe for concurrent calls; close it with `aclose`."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client

    @classmethod
    async def connect(cls, context: str | None = None) -> Self:
        """Connect to the context's cluster; raises UsageError or PrerequisiteError."""
        return cls(await ClusterClient.connect(context, retry_timeout_s=RETRY_TIMEOUT_S))

    @property
    def client(self) -> ClusterClient:
        return self._client

    @property
    def namespace(self) -> str:
        """The namespace of the context."""
        return self._client.namespace

    async def aclose(self) -> None:
        """Close every connection."""
        await self._client.aclose()

    async def get(self, namespace: str, name: str) -> JobObject:
        """Read the job of that name; raises UsageError if there is none."""
        with _user_errors(namespace, name):
            return await self._client.get(ROLLOUT_JOBS, namespace, name)

    async def find(self, namespace: str, name: str) -> JobObject | None:
        """Read the job of that name, or return None if there is none."""
        with _user_errors(namespace, name):
            try:
                return await self._client.get(ROLLOUT_JOBS, namespace, name)
            except ApiError as error:
                if _is_missing_object(error):
                    return None
                raise

    async def list_jobs(self, namespace: str) -> tuple[JobObject, ...]:
        """List all jobs of a namespace, sorted by name."""
        with _user_errors(namespace, ""):
            found = await self._client.list(ROLLOUT_JOBS, namespace)
        return tuple(sorted(found.items, key=lambda job: job.name))

    async def apply(self, namespace: str, job: RolloutJob, *, dry_run: bool = False) -> JobObject:
        """Create the job or change it to match `job`, and return the stored object.

        A dry run is validated by the API server in full but changes nothing. Fields that the job's
        file does not set are left to the server, so that the object reads like the file.
        """
        name = job.metadata.name
        body = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            **job.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True),
        }
        body["metadata"] = {**body["metadata"], "namespace": namespace}
        with _user_errors(namespace, name):
            return await self._client.apply(ROLLOUT_JOBS, namespace, name, body, dry_run=dry_run)

    async def set_suspended(self, namespace: str, name: str, *, suspended: bool) -> JobObject:
        """Suspend the job, so that it starts no further episodes, or resume it."""
        patch = {"spec": {"suspend": suspended}}
        with _user_errors(namespace, name):
            return await self._client.merge(
                ROLLOUT_JOBS, namespace, name, patch, manager=FIELD_MANAGER
            )

    async def delete(self, namespace: str, name: str, *, uid: str) -> None:
        """Request the deletion of the job with this uid; a job that is already gone is no error.

        The object disappears after its workers.
        """
        with _user_errors(namespace, name):
            await self._client.delete(
                ROLLOUT_JOBS, namespace, name, uid=uid, propagation="Foreground"
            )

    async def follow(self, namespace: str, name: str) -> AsyncGenerator[JobObject, None]:
        """Yield the job now and after each change, until it is deleted; UsageError if not found.

        Once it has been found, an API server that is unavailable for a while only delays changes.
        """
        found: JobObject | None = await self.get(namespace, name)
        while found is not None:
            yield found
            try:
                async with aclosing(self._changes(found)) as changes:
                    async for change in changes:
                        if change.deleted:
                            return
                        if change.object is not None:
                            yield change.object
            except ApiError as error:
                if not (error.gone or error.unauthorized or error.code in TRANSIENT):
                    with _user_errors(namespace, name):
                        raise
            except UnreachableError as error:
                log.info("job_watch_interrupted", job=f"{namespace}/{name}", reason=str(error))
            found = await self._find_after_pause(namespace, name)

    async def events(self, job: JobObject) -> tuple[KubernetesEvent, ...]:
        """List the events about the job, its worker Job and its workers, oldest first."""
        pods = await self.workers(job.namespace, job.name)
        selectors = [
            f"involvedObject.uid={job.metadata.uid}",
            f"involvedObject.kind=Job,involvedObject.name={job.name}-workers",
            *(f"involvedObject.uid={pod.metadata.uid}" for pod in pods),
        ]
        with _user_errors(job.namespace, ""):
            lists = (self._client.list(EVENTS, job.namespace, fields=each) for each in selectors)
            found = await asyncio.gather(*lists)
        together = chain.from_iterable(each.items for each in found)
        return tuple(sorted(together, key=lambda event: event.time))

    async def workers(self, namespace: str, name: str) -> tuple[Pod, ...]:
        """List the job's worker pods, sorted by name."""
        with _user_errors(namespace, name):
            labels = f"{JOB_LABEL}={name},{ROLE_LABEL}=worker"
            found = await self._client.list(PODS, namespace, labels=labels)
        return tuple(sorted(found.items, key=lambda pod: pod.metadata.name))

    async def _find_after_pause(self, namespace: str, name: str) -> JobObject | None:
        """Find the job after a random pause, retrying until the API server responds."""

        def log_retry(state: RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            log.warning("job_watch_delayed", job=f"{namespace}/{name}", reason=str(error))

        retrying = AsyncRetrying(
            retry=retry_if_exception_type(UnreachableError),
            wait=wait_random(0, _PAUSE_S),
            before_sleep=log_retry,
        )
        await asyncio.sleep(SPREAD.uniform(0, _PAUSE_S))
        return await retrying(self.find, namespace, name)

    def _changes(self, job: JobObject) -> AsyncGenerator[Change[JobObject], None]:
        """Watch the job from the current version."""
        return self._client.watch(
            ROLLOUT_JOBS,
            job.namespace,
            version=job.metadata.resource_version,
            fields=f"metadata.name={job.name}",
        )


def _is_missing_object(error: ApiError) -> bool:
    """Whether a single object is missing, not its whole kind, whose 404 has no Status."""
    return error.not_found and error.reason == "NotFound"


@contextmanager
def _user_errors(namespace: str, name: str) -> Iterator[None]:
    """Convert every ApiError that leaves the block; `name` is the job's, or empty for a list."""
    try:
        yield
    except ApiError as error:
        raise _user_error(error, namespace, name) from error


def _user_error(error: ApiError, namespace: str, name: str) -> SweRolloutError:
    if error.unauthorized or error.forbidden:
        return PrerequisiteError(error.what, why=error.why, fix=error.fix)
    if _is_missing_object(error) and f'"{name}"' in error.message:
        return UsageError(
            f"there is no RolloutJob {name} in the namespace {namespace}",
            why=error.message,
            fix="list the existing ones by `kubectl get rolloutjobs -A`; select one by -n and "
            "--context",
        )
    if _is_missing_object(error):
        return UsageError(
            error.what, why=error.message, fix=f"kubectl create namespace {namespace}"
        )
    if error.not_found:
        return PrerequisiteError(
            "the cluster does not know RolloutJobs",
            why="the CRD rolloutjobs.swe-rollout.dev is not installed",
            fix="swe-rollout install | kubectl apply --server-side -f -",
        )
    if error.invalid or error.conflict:
        return UsageError(error.what, why=error.message, fix="fix the job and send it again")
    return UnreachableError(error.what, why=error.why, fix=error.fix)
