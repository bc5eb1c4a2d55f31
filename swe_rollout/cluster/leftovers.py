"""Sandbox pods that dead jobs and dead processes left in a namespace.

Kubernetes deletes what a RolloutJob owns together with it, and a sandbox ends by itself two minutes
after its process. What can be left are pods that have ended, with nobody to delete them, and pods
of a job that is gone where the garbage collector stands still. The NetworkPolicy that isolates a
namespace's sandboxes stays: a process may rely on it that is about to start some.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final
from urllib.parse import quote

from swe_rollout.cluster.api_error import ApiError
from swe_rollout.cluster.client import ClusterClient
from swe_rollout.cluster.job_objects import JobObject
from swe_rollout.cluster.objects import Pod
from swe_rollout.spec.job import API_VERSION
from swe_rollout.spec.status import JOB_UID_LABEL, ROLE_LABEL

SETTLED_S: Final = 600.0
"""A living process deletes a pod long before, once that has ended."""
_SANDBOXES: Final = f"app.kubernetes.io/managed-by=swe-rollout,{ROLE_LABEL} in (agent,grader)"
_ENDED: Final = ("Succeeded", "Failed")


async def find(client: ClusterClient, namespace: str) -> tuple[Pod, ...]:
    """Return the sandbox pods that nobody will delete. Raises ClusterError, UnreachableError."""
    # Pods first: a job that is created meanwhile has none of these.
    pods = (await client.list_pods(namespace, _SANDBOXES)).items or []
    jobs, now = await _jobs(client, namespace), client.transport.now()
    return tuple(pod for pod in pods if _is_left(pod, jobs, now))


async def _jobs(client: ClusterClient, namespace: str) -> set[str]:
    """Return the uids of a namespace's jobs; none only where the cluster knows no such kind."""
    path = f"/apis/{API_VERSION}/namespaces/{quote(namespace)}/rolloutjobs"
    try:
        data = await client.transport.request("GET", path, doing=f"list jobs in {namespace}")
    except ApiError as error:
        if error.not_found:
            return set()
        raise
    return {job.metadata.uid for job in JobObject.decode_list(data)}


async def remove(client: ClusterClient, namespace: str) -> tuple[Pod, ...]:
    """Delete them, and return those that were there. Raises as `find`."""
    found = await find(client, namespace)
    for pod in found:
        try:
            await client.delete_pod(namespace, pod.metadata.name, uid=pod.metadata.uid)
        except ApiError as error:
            if not (error.not_found or error.conflict):
                raise
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
    except (ValueError, TypeError):  # no time, or one without a zone
        return False
