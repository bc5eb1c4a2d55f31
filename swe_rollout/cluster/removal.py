"""Removal: delete many objects, and every RolloutJob of a cluster with all that is left of them.

`swe_rollout.cli.install` uses `delete_jobs` before it prints what `kubectl delete` removes. kubectl
alone would not ask, nor say which job waits for whose finalizer, and keeps the NetworkPolicies of
namespaces that had jobs. Kubernetes itself deletes what jobs own, so no operator has to run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from swe_rollout.cluster.client import ClusterClient
from swe_rollout.cluster.job_objects import ROLLOUT_JOBS, list_job_heads
from swe_rollout.cluster.objects import NETWORK_POLICIES, PODS, Kind, Metadata
from swe_rollout.errors import PrerequisiteError, gather_all
from swe_rollout.spec.status import JOB_UID_LABEL, ROLE_LABEL

T = TypeVar("T")

_POLL_S: Final = 1.0
_OWN_POLICIES: Final = (
    "app.kubernetes.io/managed-by=swe-rollout,app.kubernetes.io/component=operator"
)
_SHOWN: Final = 5


class Identity(Protocol):
    """What a deletion needs to know of an object."""

    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def deletion_timestamp(self) -> object | None: ...


@dataclass(frozen=True, slots=True)
class Remains:
    """What remains of a cluster's jobs."""

    jobs: tuple[Metadata, ...]
    pods: tuple[Metadata, ...]
    """The workers, and the sandboxes of jobs."""

    def __str__(self) -> str:
        return f"{_count(len(self.jobs), 'job')}, {_count(len(self.pods), 'pod')}"


async def delete_each(
    client: ClusterClient,
    kind: Kind[T],
    namespace: str,
    *,
    labels: str,
    chosen: Callable[[T], Identity | None],
    grace_s: int,
) -> None:
    """Delete the objects that match the selector and that `chosen` identifies, page by page: there
    may be thousands, and every deletion holds memory.

    One that can't be deleted keeps no other of its page; then its error is raised.
    """
    async with aclosing(client.pages(kind, namespace, labels=labels)) as pages:
        async for page in pages:
            found = [each for each in map(chosen, page.items) if each is not None]
            ended = await asyncio.gather(
                *(
                    client.delete(kind, each.namespace, each.name, uid=each.uid, grace_s=grace_s)
                    for each in found
                    if each.deletion_timestamp is None
                ),
                return_exceptions=True,
            )
            for error in ended:
                if isinstance(error, BaseException):
                    raise error


async def find_remains(client: ClusterClient) -> Remains:
    """List the jobs and their pods, in all namespaces."""
    return Remains(await list_job_heads(client), await _heads(client, PODS, JOB_UID_LABEL))


async def delete_jobs(
    client: ClusterClient, *, timeout_s: float, on_note: Callable[[str], None]
) -> None:
    """Delete all jobs, new ones included, and wait for their pods; raises PrerequisiteError if some
    remain after `timeout_s`.
    """
    end, shown = time.monotonic() + timeout_s, ""
    while (left := await find_remains(client)).jobs or left.pods:
        if time.monotonic() > end:
            raise _stuck(left, timeout_s)
        if str(left) != shown:
            shown = str(left)
            on_note(f"waiting until they are gone: {shown}")
        live = (job for job in left.jobs if not job.deletion_timestamp)
        await gather_all([_delete(client, ROLLOUT_JOBS, job) for job in live])
        await asyncio.sleep(_POLL_S)


async def delete_policies(client: ClusterClient) -> tuple[str, ...]:
    """Delete the operator's NetworkPolicies in namespaces without sandboxes; return which."""
    found = await _heads(client, NETWORK_POLICIES, _OWN_POLICIES)
    sandboxes = await _heads(client, PODS, f"{ROLE_LABEL} in (agent,grader)")
    used = {pod.namespace for pod in sandboxes}
    unused = [policy for policy in found if policy.namespace not in used]
    for policy in unused:
        await _delete(client, NETWORK_POLICIES, policy)
    return tuple(policy.namespace for policy in unused)


async def _heads(client: ClusterClient, kind: Kind[T], labels: str) -> tuple[Metadata, ...]:
    found = await client.list(kind.heads, labels=labels)
    return tuple(each.metadata for each in found.items)


async def _delete(client: ClusterClient, kind: Kind[T], found: Metadata) -> bool:
    return await client.delete(kind, found.namespace, found.name, uid=found.uid)


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
