"""Removal: delete every RolloutJob of a cluster and wait until nothing of them is left.

`swe_rollout.cli.uninstall` uses it before it deletes what `install` applied. Kubernetes itself
deletes what jobs own, so no operator has to run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlencode

import msgspec

from swe_rollout.cluster.api_error import ApiError, decode_response
from swe_rollout.cluster.objects import Decoded, Metadata
from swe_rollout.cluster.transport import Transport
from swe_rollout.errors import PrerequisiteError, gather_all
from swe_rollout.spec.job import API_VERSION
from swe_rollout.spec.status import JOB_UID_LABEL, ROLE_LABEL

_POLL_S: Final = 1.0
_OWN_POLICIES: Final = (
    "app.kubernetes.io/managed-by=swe-rollout,app.kubernetes.io/component=operator"
)
_SHOWN: Final = 5


class _Head(Decoded, frozen=True):
    metadata: Metadata


class _Heads(Decoded, frozen=True):
    items: list[_Head] | None = None


@dataclass(frozen=True, slots=True)
class Remains:
    """What is left of the jobs of a cluster."""

    jobs: tuple[Metadata, ...]
    pods: tuple[Metadata, ...]
    """Workers, and the sandboxes of jobs."""

    def __str__(self) -> str:
        return f"{_count(len(self.jobs), 'job')}, {_count(len(self.pods), 'pod')}"


class Removal:
    """Removes the jobs of one cluster."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def remains(self) -> Remains:
        """List the jobs and their pods, in all namespaces."""
        pods = f"/api/v1/pods?{urlencode({'labelSelector': JOB_UID_LABEL})}"
        return Remains(await self._list(f"/apis/{API_VERSION}/rolloutjobs"), await self._list(pods))

    async def delete_jobs(self, *, timeout_s: float, on_note: Callable[[str], None]) -> None:
        """Delete all jobs, new ones included, and wait for their pods; PrerequisiteError if some
        are left after `timeout_s`.
        """
        end, shown = time.monotonic() + timeout_s, ""
        while (left := await self.remains()).jobs or left.pods:
            if time.monotonic() > end:
                raise _stuck(left, timeout_s)
            if str(left) != shown:
                shown = str(left)
                on_note(f"waiting until they are gone: {shown}")
            await gather_all([self._delete(job) for job in left.jobs if not job.deletion_timestamp])
            await asyncio.sleep(_POLL_S)

    async def delete_policies(self) -> tuple[str, ...]:
        """Delete the operator's NetworkPolicies where no sandbox is left; return where."""
        group = "/apis/networking.k8s.io/v1"
        found = await self._list(
            f"{group}/networkpolicies?{urlencode({'labelSelector': _OWN_POLICIES})}"
        )
        sandboxes = urlencode({"labelSelector": f"{ROLE_LABEL} in (agent,grader)"})
        used = {pod.namespace for pod in await self._list(f"/api/v1/pods?{sandboxes}")}
        unused = [policy for policy in found if policy.namespace not in used]
        for policy in unused:
            path = f"{group}/namespaces/{quote(policy.namespace)}/networkpolicies"
            await self._unless_gone(f"{path}/{quote(policy.name)}", policy)
        return tuple(policy.namespace for policy in unused)

    async def _delete(self, job: Metadata) -> None:
        path = f"/apis/{API_VERSION}/namespaces/{quote(job.namespace)}/rolloutjobs"
        await self._unless_gone(f"{path}/{quote(job.name)}", job)

    async def _unless_gone(self, path: str, found: Metadata) -> None:
        options = {"propagationPolicy": "Background", "preconditions": {"uid": found.uid}}
        try:
            await self._transport.request(
                "DELETE",
                path,
                doing=f"delete {found.namespace}/{found.name}",
                body=msgspec.json.encode(options),
            )
        except ApiError as error:
            if not (error.not_found or error.conflict):
                raise

    async def _list(self, path: str) -> tuple[Metadata, ...]:
        """List the metadata of objects; none where the cluster has no such kind."""
        doing = f"list {path.partition('?')[0].rpartition('/')[2]}"
        try:
            data = await self._transport.request("GET", path, doing=doing)
        except ApiError as error:
            if error.not_found:
                return ()
            raise
        return tuple(
            each.metadata for each in decode_response(data, _Heads, doing=doing).items or []
        )


def _stuck(left: Remains, timeout_s: float) -> PrerequisiteError:
    names = [f"rolloutjob {job.namespace}/{job.name}{_waits(job)}" for job in left.jobs]
    names += [f"pod {pod.namespace}/{pod.name}{_waits(pod)}" for pod in left.pods]
    more = f", and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return PrerequisiteError(
        f"{left} are left after {timeout_s:g} s",
        why=", ".join(names[:_SHOWN]) + more,
        fix="run it again with a longer --timeout; a finalizer is removed by whoever set it, and "
        "the pods of a lost node with `kubectl delete node`",
    )


def _waits(found: Metadata) -> str:
    return f" (waits for {', '.join(found.finalizers)})" if found.finalizers else ""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
