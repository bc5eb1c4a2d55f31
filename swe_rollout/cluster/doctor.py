"""Check a cluster's prerequisites for pod sandboxes, each with a fix, and find pods left behind.

The checks change nothing on the cluster. Whether a NetworkPolicy is really enforced can only be
seen from inside a pod: `swe_rollout.sandbox.pods.isolation`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, Self

from swe_rollout.cluster.api_error import ApiError
from swe_rollout.cluster.client import ClusterClient
from swe_rollout.cluster.job_objects import list_job_heads
from swe_rollout.cluster.objects import NAMESPACES, PODS, Pod
from swe_rollout.errors import SweRolloutError
from swe_rollout.spec.status import JOB_UID_LABEL, ROLE_LABEL

_RETRY_TIMEOUT_S = 5.0
_ENFORCE = "pod-security.kubernetes.io/enforce"
_NEEDED = (
    ("create", "", "pods", ""),
    ("get", "", "pods", ""),
    ("list", "", "pods", ""),
    ("watch", "", "pods", ""),
    ("delete", "", "pods", ""),
    ("get", "", "pods", "exec"),
    ("create", "", "pods", "exec"),
    ("get", "networking.k8s.io", "networkpolicies", ""),
    ("create", "networking.k8s.io", "networkpolicies", ""),
)
"""Verb, group, resource, subresource. Exec by WebSocket is a get, and since 1.35 also a create."""

SETTLED_S: Final = 600.0
"""A living process deletes an ended pod long before this."""
_SANDBOXES: Final = f"app.kubernetes.io/managed-by=swe-rollout,{ROLE_LABEL} in (agent,grader)"
_ENDED: Final = ("Succeeded", "Failed")


class CheckLevel(StrEnum):
    """The result of a check."""

    OK = "ok"
    WARN = "warn"
    """It works, but with reduced isolation or diagnosis."""
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class ClusterCheck:
    """One check of a cluster, or of a sandbox on it."""

    name: str
    level: CheckLevel
    text: str
    fix: str = ""

    @classmethod
    def ok(cls, name: str, text: str) -> Self:
        return cls(name, CheckLevel.OK, text)

    @classmethod
    def warn(cls, name: str, text: str, fix: str) -> Self:
        return cls(name, CheckLevel.WARN, text, fix)

    @classmethod
    def fail(cls, name: str, text: str, fix: str) -> Self:
        return cls(name, CheckLevel.FAIL, text, fix)


async def check_cluster(
    context: str | None = None, namespace: str | None = None
) -> list[ClusterCheck]:
    """Run every check; a cluster that can't be reached or read is a failed check, not an error."""
    found: list[ClusterCheck] = []
    try:
        client = await ClusterClient.connect(context, retry_timeout_s=_RETRY_TIMEOUT_S)
        try:
            checked = namespace or client.namespace
            found.append(await _version(client))
            found.append(await _permissions(client, checked))
            found.append(await _events(client, checked))
            found.append(await _pod_security(client, checked))
        finally:
            await client.aclose()
    except SweRolloutError as error:
        found.append(ClusterCheck.fail("api server", str(error), error.fix))
    return found


async def _version(client: ClusterClient) -> ClusterCheck:
    server = client.transport.access.server
    return ClusterCheck.ok("api server", f"Kubernetes {await client.version()} at {server}")


async def _permissions(client: ClusterClient, namespace: str) -> ClusterCheck:
    missing = [
        f"{verb} {'/'.join(filter(None, (resource, subresource)))}"
        for verb, group, resource, subresource in _NEEDED
        if not await client.is_allowed(
            verb, resource, namespace, group=group, subresource=subresource
        )
    ]
    if not missing:
        text = f"may run and isolate sandboxes in namespace {namespace}"
        return ClusterCheck.ok("permissions", text)
    text = f"may not {', '.join(missing)} in namespace {namespace}"
    fix = "grant these by a Role and a RoleBinding in that namespace"
    return ClusterCheck.fail("permissions", text, fix)


async def _events(client: ClusterClient, namespace: str) -> ClusterCheck:
    if await client.is_allowed("list", "events", namespace):
        return ClusterCheck.ok("events", "may read events: errors of failed starts include them")
    text = "may not list events: errors of failed starts have less detail"
    return ClusterCheck.warn("events", text, "grant list on events")


async def _pod_security(client: ClusterClient, namespace: str) -> ClusterCheck:
    name = "pod security"
    try:
        labels = (await client.get(NAMESPACES, "", namespace)).metadata.labels
    except ApiError as error:
        if error.not_found:
            fix = f"`kubectl create namespace {namespace}`"
            return ClusterCheck.fail(name, f"there is no namespace {namespace}", fix)
        if error.forbidden:
            text = f"may not read namespace {namespace}: its Pod Security level is unknown"
            fix = "grant get on namespaces, or check the label by hand"
            return ClusterCheck.warn(name, text, fix)
        raise
    relabel = f"`kubectl label --overwrite namespace {namespace} {_ENFORCE}=baseline`"
    match labels.get(_ENFORCE, ""):
        case "baseline":
            return ClusterCheck.ok(name, f"Pod Security of {namespace} is baseline")
        case "restricted":
            text = f"Pod Security of {namespace} is restricted: task images run as root"
            fix = f"{relabel}; or, where no task needs root, set spec.sandbox.pod.runAsUser"
            return ClusterCheck.fail(name, text, fix)
        case level:
            text = f"Pod Security of {namespace} is {level or 'not set'}"
            return ClusterCheck.warn(name, text, relabel)


async def find_left_pods(client: ClusterClient, namespace: str) -> tuple[Pod, ...]:
    """Return the sandbox pods that nobody will delete. Raises ClusterError, UnreachableError.

    Kubernetes deletes a RolloutJob together with what it owns, and a sandbox ends by itself two
    minutes after its process. What can remain are ended pods with nobody to delete them, and pods
    of deleted jobs if the garbage collector does not run. The NetworkPolicy that isolates a
    namespace's sandboxes stays: a process that is about to start some may rely on it.
    """
    # List pods first: a job that is created meanwhile has none of these.
    pods = (await client.list(PODS, namespace, labels=_SANDBOXES)).items
    jobs = {job.uid for job in await list_job_heads(client, namespace)}
    now = client.transport.now()
    return tuple(pod for pod in pods if _is_left(pod, jobs, now))


async def delete_left_pods(client: ClusterClient, namespace: str) -> tuple[Pod, ...]:
    """Delete the pods that nobody else will delete, and return them. Raises the same errors."""
    found = await find_left_pods(client, namespace)
    for pod in found:
        await client.delete(PODS, namespace, pod.metadata.name, uid=pod.metadata.uid, grace_s=1)
    return found


def _is_left(pod: Pod, jobs: set[str], now: datetime) -> bool:
    if pod.metadata.deletion_timestamp is not None:
        return False
    job = pod.metadata.labels.get(JOB_UID_LABEL)
    if job is not None:
        return job not in jobs
    ended = pod.container.state.terminated if pod.container is not None else None
    if pod.status.phase not in _ENDED or ended is None:
        return False
    try:
        finished = datetime.fromisoformat(ended.finished_at or "")
        return (now - finished).total_seconds() > SETTLED_S
    except (ValueError, TypeError):  # a missing time, or one without a zone
        return False
