"""The operator's reads and writes, by the package's own client; kopf does the watches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from datetime import datetime
from functools import partial
from typing import Final, Self, TypeVar

import msgspec
import structlog

from rollout_operator import resources
from rollout_operator.observed import Metadata, Moment, WorkerJob, WorkerPod
from rollout_operator.resources import Json
from swe_rollout.cluster import job_objects, objects
from swe_rollout.cluster.api_error import ApiError
from swe_rollout.cluster.client import ClusterClient
from swe_rollout.cluster.objects import Kind
from swe_rollout.cluster.removal import delete_each
from swe_rollout.spec.status import RolloutJobStatus

log = structlog.get_logger()
T = TypeVar("T")

_SANDBOX_GRACE_S: Final = 1
PATIENCE_S = 10.0
"""How long one request is retried before the whole round is repeated."""


class Owned(msgspec.Struct, frozen=True):
    """Any object, of which only the metadata is read, including owners."""

    metadata: Metadata


class Binding(msgspec.Struct, rename="camel", frozen=True):
    """A RoleBinding."""

    metadata: Metadata
    role_ref: dict[str, str]
    subjects: list[dict[str, str]] = []


class Policy(msgspec.Struct, frozen=True):
    """A NetworkPolicy with its whole spec."""

    metadata: Metadata
    spec: dict[str, object] = {}


class _Event(msgspec.Struct, rename="camel", frozen=True):
    message: str = ""
    last_timestamp: Moment | None = None


def _or_none(kind: type[T]) -> Callable[[bytes], T | None]:
    """Decode malformed objects as None, so that they don't hide the rest of a list."""
    decode: Callable[[bytes], T] = msgspec.json.Decoder(kind).decode

    def try_to_decode(data: bytes) -> T | None:
        try:
            return decode(data)
        except msgspec.ValidationError as error:
            log.warning("object_ignored", kind=kind.__name__, why=str(error))
            return None

    return try_to_decode


EVENTS: Final = objects.EVENTS
JOBS: Final = Kind("/apis/batch/v1", "jobs", "Job", WorkerJob.decode)
POLICIES: Final = objects.NETWORK_POLICIES.decoded_by(msgspec.json.Decoder(Policy).decode)
PODS: Final = objects.PODS
ROLE_BINDINGS: Final = Kind(
    "/apis/rbac.authorization.k8s.io/v1",
    "rolebindings",
    "RoleBinding",
    msgspec.json.Decoder(Binding).decode,
)
ROLLOUT_JOBS: Final = job_objects.ROLLOUT_JOBS
SERVICE_ACCOUNTS: Final = Kind(
    "/api/v1", "serviceaccounts", "ServiceAccount", msgspec.json.Decoder(Owned).decode
)
_WORKER_PODS: Final = PODS.decoded_by(_or_none(WorkerPod))
_OWNED_PODS: Final = PODS.decoded_by(_or_none(Owned))
_REFUSALS: Final = EVENTS.decoded_by(_or_none(_Event))


def _owned(job: Metadata, pod: Owned | None) -> Metadata | None:
    """Return the metadata of a pod that the job owns; None for any other."""
    return pod.metadata if pod is not None and pod.metadata.is_owned_by(job.uid) else None


class Kube:
    """The cluster, as the operator sees it. Safe for concurrent calls."""

    def __init__(self, client: ClusterClient) -> None:
        self.client = client
        self.policies = asyncio.Lock()
        """Held from reading a namespace's NetworkPolicy until the resulting write."""

    @classmethod
    async def connect(cls) -> Self:
        """Connect to the cluster of the kubeconfig, or to the one this pod is in."""
        return cls(await ClusterClient.connect(retry_timeout_s=PATIENCE_S))

    async def aclose(self) -> None:
        await self.client.aclose()

    async def worker_job(self, namespace: str, job: str) -> WorkerJob | None:
        """Read the job's worker Job; None if there is none."""
        return await self.client.find(JOBS, namespace, resources.workers_name(job))

    async def adjust_workers(self, job: Metadata, spec: Json, *, uid: str) -> WorkerJob | None:
        """Merge `spec` into the worker Job with this uid; return None if it no longer exists."""
        patch = {"spec": spec, "metadata": {"uid": uid}}
        name = resources.workers_name(job.name)
        try:
            return await self.client.merge(JOBS, job.namespace, name, patch)
        except ApiError as error:
            if error.is_absence:
                return None
            raise

    async def worker_pods(self, namespace: str, job: str) -> tuple[WorkerPod, ...]:
        """List pods with the labels of the job's workers, including ended ones."""
        labels = resources.worker_selector(job)
        found = await self.client.list(_WORKER_PODS, namespace, labels=labels)
        return tuple(pod for pod in found.items if pod is not None)

    async def delete_sandboxes(self, job: Metadata) -> None:
        """Delete the sandbox pods that the job owns."""
        await delete_each(
            self.client,
            _OWNED_PODS,
            job.namespace,
            labels=resources.sandbox_selector(job.name),
            chosen=partial(_owned, job),
            grace_s=_SANDBOX_GRACE_S,
        )

    async def has_sandboxes(self, job: Metadata) -> bool:
        """Whether the job owns sandbox pods in any state."""
        labels = resources.sandbox_selector(job.name)
        async with aclosing(self.client.pages(_OWNED_PODS, job.namespace, labels=labels)) as pages:
            async for page in pages:
                if any(_owned(job, pod) for pod in page.items):
                    return True
        return False

    async def refusal(self, namespace: str, uid: str, *, since: datetime) -> str:
        """Return the latest reason since then why this Job's pods were refused; empty if none."""
        fields = f"involvedObject.uid={uid},reason=FailedCreate"
        found = await self.client.list(_REFUSALS, namespace, fields=fields)
        events = (each for each in found.items if each is not None)
        reasons = [
            (at, event.message) for event in events if (at := event.last_timestamp) is not None
        ]
        return max((each for each in reasons if each[0] >= since), default=(since, ""))[1]

    async def write_status(
        self, job: Metadata, status: RolloutJobStatus, *, before: RolloutJobStatus
    ) -> None:
        """Replace the status `before` with `status`; do nothing if the job is gone."""
        merged: Json = status.model_dump(mode="json", by_alias=True)
        # A merge patch removes a key from a mapping only by setting it to null.
        merged["stopReasons"] = {**dict.fromkeys(before.stop_reasons), **status.stop_reasons}
        merged["failures"] = {**dict.fromkeys(before.failures), **status.failures}
        name = f"{job.name}/status"
        try:
            await self.client.merge(ROLLOUT_JOBS.heads, job.namespace, name, {"status": merged})
        except ApiError as error:
            if not error.is_absence:
                raise
