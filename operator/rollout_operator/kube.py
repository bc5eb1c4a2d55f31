"""The API requests that the operator needs; an object that is gone is no error.

Watches are kopf's. Credentials and the cluster's address come from `swe_rollout.cluster.config`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime
from enum import Enum
from typing import Literal, Self, TypeVar
from urllib.parse import quote, urlencode

import msgspec
import structlog

from rollout_operator import resources
from rollout_operator.observed import Metadata, Moment, WorkerJob, WorkerPod
from rollout_operator.resources import Json
from swe_rollout.cluster.api_error import ApiError
from swe_rollout.cluster.config import load_access
from swe_rollout.cluster.transport import JSON, MERGE_PATCH, Transport
from swe_rollout.spec.job import API_VERSION
from swe_rollout.spec.status import RolloutJobStatus

log = structlog.get_logger()
_T = TypeVar("_T")

PATIENCE_S = 10.0
"""How long one request is retried; after that, the whole round is repeated."""


class Kind(Enum):
    """A kind of object, by the path of its API and its plural."""

    EVENT = ("/api/v1", "events")
    JOB = ("/apis/batch/v1", "jobs")
    NETWORK_POLICY = ("/apis/networking.k8s.io/v1", "networkpolicies")
    POD = ("/api/v1", "pods")
    ROLE_BINDING = ("/apis/rbac.authorization.k8s.io/v1", "rolebindings")
    ROLLOUT_JOB = (f"/apis/{API_VERSION}", "rolloutjobs")
    SERVICE_ACCOUNT = ("/api/v1", "serviceaccounts")

    def path(self, namespace: str, name: str = "") -> str:
        """Return the path of the namespace's objects of this kind, or of one of them."""
        root, plural = self.value
        path = f"{root}/namespaces/{quote(namespace)}/{plural}"
        return f"{path}/{quote(name)}" if name else path


class _WithMetadata(msgspec.Struct):
    metadata: Metadata


class _List(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct, rename="camel"):
    message: str = ""
    last_timestamp: Moment | None = None


class Kube:
    """A client of the Kubernetes API. Safe for concurrent calls."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.policies = asyncio.Lock()
        """Held from a look at a namespace's NetworkPolicy to the write that follows from it."""

    @classmethod
    async def connect(cls) -> Self:
        """Connect to the cluster of the kubeconfig, or to the one this pod is in."""
        return cls(Transport(await load_access(), retry_timeout_s=PATIENCE_S))

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def create(self, kind: Kind, namespace: str, manifest: Json) -> bytes | None:
        """Create the object; returns it, or None when its name is taken."""
        try:
            return await self._transport.request(
                "POST",
                kind.path(namespace),
                doing=f"create one of the {kind.value[1]} in {namespace}",
                body=resources.dump(manifest),
            )
        except ApiError as error:
            if error.already_exists:
                return None
            raise

    async def get(self, kind: Kind, namespace: str, name: str) -> bytes | None:
        """Read the object; None if there is none."""
        return await self._unless_gone("GET", kind, namespace, name)

    async def replace(self, kind: Kind, namespace: str, name: str, manifest: Json) -> None:
        """Replace the object; no effect when it is gone, or not the version of the manifest."""
        await self._unless_gone("PUT", kind, namespace, name, body=resources.dump(manifest))

    async def merge(
        self, kind: Kind, namespace: str, name: str, patch: Json, *, uid: str
    ) -> bytes | None:
        """Merge `patch` into the object with this uid; None when it is gone or another one."""
        body = resources.dump({**patch, "metadata": {"uid": uid}})
        return await self._unless_gone(
            "PATCH", kind, namespace, name, body=body, content_type=MERGE_PATCH
        )

    async def delete(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        uid: str,
        version: str = "",
        grace_s: int | None = None,
        propagation: Literal["Foreground", "Background"] = "Background",
    ) -> None:
        """Delete the object with this uid, and only in this version where one is given."""
        preconditions: Json = {"uid": uid}
        if version:
            preconditions["resourceVersion"] = version
        options: Json = {"propagationPolicy": propagation, "preconditions": preconditions}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        await self._unless_gone("DELETE", kind, namespace, name, body=resources.dump(options))

    async def worker_job(self, namespace: str, job: str) -> WorkerJob | None:
        """Read the job's worker Job; None if there is none."""
        found = await self.get(Kind.JOB, namespace, resources.workers_name(job))
        return None if found is None else WorkerJob.decode(found)

    async def worker_pods(self, namespace: str, job: str) -> tuple[WorkerPod, ...]:
        """List pods with the labels of the job's workers, ended ones included."""
        data = await self._list(Kind.POD, namespace, labelSelector=resources.worker_selector(job))
        return tuple(_items(data, WorkerPod))

    async def sandboxes(self, job: Metadata) -> tuple[Metadata, ...]:
        """List the sandbox pods that the job owns, in any state."""
        selector = resources.sandbox_selector(job.name)
        data = await self._list(Kind.POD, job.namespace, labelSelector=selector)
        pods = (each.metadata for each in _items(data, _WithMetadata))
        return tuple(pod for pod in pods if pod.is_owned_by(job.uid))

    async def has_jobs(self, namespace: str) -> bool:
        """Whether the namespace has RolloutJobs, of whatever operator."""
        return bool(_decoded(await self._list(Kind.ROLLOUT_JOB, namespace, limit="1")))

    async def has_sandboxes(self, namespace: str) -> bool:
        """Whether the namespace has sandbox pods, of whatever job."""
        query = {"labelSelector": resources.SANDBOXES, "limit": "1"}
        return bool(_decoded(await self._list(Kind.POD, namespace, **query)))

    async def refusal(self, namespace: str, uid: str, *, since: datetime) -> str:
        """Return the latest reason why pods of this Job are refused; empty if none since then."""
        selector = f"involvedObject.uid={uid},reason=FailedCreate"
        data = await self._list(Kind.EVENT, namespace, fieldSelector=selector)
        events = _items(data, _Event)
        reasons = [
            (at, event.message) for event in events if (at := event.last_timestamp) is not None
        ]
        return max((each for each in reasons if each[0] >= since), default=(since, ""))[1]

    async def write_status(
        self, job: Metadata, status: RolloutJobStatus, *, before: RolloutJobStatus
    ) -> None:
        """Replace the status `before` by `status`; no effect when the job is gone."""
        merged: Json = status.model_dump(mode="json", by_alias=True)
        # A merge patch removes a key from a mapping only if it names it with null.
        merged["stopReasons"] = {**dict.fromkeys(before.stop_reasons), **status.stop_reasons}
        merged["failures"] = {**dict.fromkeys(before.failures), **status.failures}
        await self._unless_gone(
            "PATCH",
            Kind.ROLLOUT_JOB,
            job.namespace,
            f"{job.name}/status",
            body=resources.dump({"status": merged}),
            content_type=MERGE_PATCH,
        )

    async def _list(self, kind: Kind, namespace: str, **query: str) -> bytes:
        path = f"{kind.path(namespace)}?{urlencode(query)}"
        return await self._transport.request(
            "GET", path, doing=f"list {kind.value[1]} in {namespace}"
        )

    async def _unless_gone(
        self,
        method: str,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        body: bytes = b"",
        content_type: str = JSON,
    ) -> bytes | None:
        path = kind.path(namespace) + f"/{name}"
        doing = f"{method.lower()} {kind.value[1]}/{name} in {namespace}"
        try:
            return await self._transport.request(
                method, path, doing=doing, body=body, content_type=content_type
            )
        except ApiError as error:
            if error.not_found or error.conflict:
                return None
            raise


def _decoded(data: bytes) -> list[msgspec.Raw]:
    return msgspec.json.decode(data, type=_List).items or []


def _items(data: bytes, kind: type[_T]) -> Iterator[_T]:
    """Decode a list; one object that can't be decoded must not hide the others."""
    for raw in _decoded(data):
        try:
            yield msgspec.json.decode(raw, type=kind)
        except msgspec.ValidationError as error:
            log.warning("object_ignored", kind=kind.__name__, why=str(error))
