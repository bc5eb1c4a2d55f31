"""RolloutJobs as they are read from a cluster.

Only the spec fields that readers need are decoded: jobs that another version wrote, and invalid
jobs, must be readable too. Only a worker reads its job's whole spec, once, when it starts; it
follows later changes through `jobs`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final, Self, TypeVar

import msgspec
from pydantic import ValidationError

from swe_rollout.cluster.api_error import UNDECODABLE, ApiError
from swe_rollout.cluster.client import ClusterClient
from swe_rollout.cluster.objects import Decoded, Kind, Metadata, OwnerReference
from swe_rollout.errors import ClusterError
from swe_rollout.spec.job import API_VERSION, KIND, RolloutJob, StoreSpec
from swe_rollout.spec.load import parse_job
from swe_rollout.spec.status import Condition, ConditionType, RolloutJobStatus

T = TypeVar("T")


class _Store(Decoded, frozen=True):
    uri: str = StoreSpec().uri


class _Grading(Decoded, frozen=True):
    enabled: bool = True


class JobSpecView(Decoded, frozen=True):
    """The part of a job's spec that readers need."""

    store: _Store = _Store()
    grading: _Grading = _Grading()
    suspend: bool = False
    parallelism: int = 0


class _RawJob(Decoded, frozen=True):
    metadata: Metadata
    spec: JobSpecView = JobSpecView()
    status: msgspec.Raw = msgspec.Raw(b"{}")


@dataclass(frozen=True, slots=True)
class JobObject:
    """A RolloutJob as the API server stores it."""

    metadata: Metadata
    spec: JobSpecView
    status: RolloutJobStatus

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode a job from JSON; raises ClusterError when that fails."""
        raw = _decoded(data, _RawJob)
        try:
            status = RolloutJobStatus.model_validate_json(bytes(raw.status), extra="ignore")
        except ValidationError as error:
            raise unreadable_job(error) from error
        return cls(raw.metadata, raw.spec, status)

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def namespace(self) -> str:
        return self.metadata.namespace

    def condition(self, kind: ConditionType) -> Condition | None:
        """Return the condition of that type, if the operator has set it."""
        return next((each for each in self.status.conditions if each.type is kind), None)


def unreadable_job(error: Exception) -> ClusterError:
    """Build the error for a RolloutJob that this version can't decode."""
    return ClusterError(
        "a RolloutJob on the cluster can't be read",
        why=" ".join(str(error).split())[:300],
        fix="use a swe-rollout of the operator's version",
        retryable=False,
    )


def _decoded(data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except UNDECODABLE as error:
        raise unreadable_job(error) from error


ROLLOUT_JOBS: Final = Kind(f"/apis/{API_VERSION}", "rolloutjobs", "RolloutJob", JobObject.decode)


async def list_job_heads(client: ClusterClient, namespace: str = "") -> tuple[Metadata, ...]:
    """List the metadata of all jobs; empty only if the cluster does not know the kind."""
    try:
        found = await client.list(ROLLOUT_JOBS.heads, namespace)
    except ApiError as error:
        if error.not_found:
            return ()
        raise
    return tuple(each.metadata for each in found.items)


class _WholeJob(msgspec.Struct, frozen=True):
    """A RolloutJob with its spec undecoded."""

    metadata: Metadata
    spec: dict[str, object] = {}

    @classmethod
    def decode(cls, data: bytes) -> Self:
        return _decoded(data, cls)


_WHOLE_JOBS: Final = ROLLOUT_JOBS.decoded_by(_WholeJob.decode)


@dataclass(frozen=True, slots=True)
class ClusterJob:
    """A validated job and a reference to the object it was read from."""

    job: RolloutJob
    owner: OwnerReference
    """A reference for objects that are to be deleted with the job."""


async def read_cluster_job(client: ClusterClient, namespace: str, name: str) -> ClusterJob:
    """Read the job of that name; SpecError for an invalid spec, ApiError if there is no job."""
    raw = await client.get(_WHOLE_JOBS, namespace, name)
    document = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        # Labels are the user's own; annotations hold what tools record.
        "metadata": {"name": name, "namespace": namespace, "labels": raw.metadata.labels},
        "spec": raw.spec,
    }
    return ClusterJob(
        # Indented, so that problems can be reported by line.
        parse_job(json.dumps(document, indent=2), source=f"rolloutjob/{name}"),
        OwnerReference(api_version=API_VERSION, kind=KIND, name=name, uid=raw.metadata.uid),
    )
