"""The whole spec of one RolloutJob on a cluster, as its worker reads it: once, when it starts.

Following it live is `jobs`' business.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from swe_rollout.cluster.manifests import OwnerReference
from swe_rollout.cluster.objects import Metadata  # noqa: TC001 - msgspec reads the annotation
from swe_rollout.errors import ClusterError
from swe_rollout.spec.job import API_VERSION, KIND, RolloutJob
from swe_rollout.spec.load import parse_job

if TYPE_CHECKING:
    from swe_rollout.cluster.client import ClusterClient


class _RawJob(msgspec.Struct, frozen=True):
    """A RolloutJob of which only the metadata is understood here."""

    metadata: Metadata
    spec: dict[str, object] = {}


@dataclass(frozen=True, slots=True)
class ClusterJob:
    """A job and the object it came from."""

    job: RolloutJob
    owner: OwnerReference
    """What makes objects die with the job."""


async def read_cluster_job(client: ClusterClient, namespace: str, name: str) -> ClusterJob:
    """The job of that name; SpecError when its spec is not valid, ApiError when there is none."""
    doing = f"read the RolloutJob {namespace}/{name}"
    path = f"/apis/{API_VERSION}/namespaces/{quote(namespace)}/rolloutjobs/{quote(name)}"
    data = await client.transport.request("GET", path, doing=doing)
    try:
        raw = msgspec.json.decode(data, type=_RawJob)
    except msgspec.DecodeError as error:
        raise ClusterError(
            "the RolloutJob on the cluster can't be read",
            why=str(error),
            fix="use a swe-rollout of the operator's version",
            retryable=False,
        ) from error
    document = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        # Labels are people's own, and annotations hold what tools write down.
        "metadata": {"name": name, "namespace": namespace, "labels": raw.metadata.labels},
        "spec": raw.spec,
    }
    return ClusterJob(
        # Indented, so that problems can be told by their line.
        parse_job(json.dumps(document, indent=2), source=f"rolloutjob/{name}"),
        OwnerReference(api_version=API_VERSION, kind=KIND, name=name, uid=raw.metadata.uid),
    )
