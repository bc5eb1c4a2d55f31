"""Carry out actions. All are idempotent: objects may already exist or already be gone.

Other owners' objects are never changed or deleted: objects are created or found with the job as
their controller, and every write and deletion names the uid or version that was read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Protocol, TypeVar

import msgspec

from rollout_operator import actions, resources
from rollout_operator.actions import Action, RecordEvent
from rollout_operator.kube import (
    EVENTS,
    JOBS,
    PODS,
    POLICIES,
    ROLE_BINDINGS,
    ROLLOUT_JOBS,
    SERVICE_ACCOUNTS,
    Binding,
    Kube,
)
from rollout_operator.observed import Metadata, ObservedJob, WorkerJob
from rollout_operator.resources import Json
from swe_rollout.cluster.api_error import ApiError
from swe_rollout.cluster.objects import Kind
from swe_rollout.errors import ClusterError
from swe_rollout.spec.job import API_VERSION, KIND


class _Owned(Protocol):
    @property
    def metadata(self) -> Metadata: ...


_T = TypeVar("_T", bound=_Owned)


async def carry_out(action: Action, job: ObservedJob, kube: Kube) -> WorkerJob | None:
    """Carry out the action; return the worker Job afterwards if the action changes it."""
    me, namespace = job.metadata, job.metadata.namespace
    workers = resources.workers_name(me.name)
    match action:
        case actions.ApplyPrerequisites(annotations):
            await _apply_prerequisites(me, annotations, kube)
        case actions.CreateWorkers(manifest):
            return await _create_workers(me, manifest, kube=kube)
        case actions.AdjustWorkers(uid, suspend, deadline):
            spec: Json = {"suspend": suspend, "activeDeadlineSeconds": deadline}
            return await kube.adjust_workers(me, spec, uid=uid)
        case actions.DeleteWorkers(uid):
            await kube.client.delete(JOBS, namespace, workers, uid=uid, propagation="Foreground")
        case actions.DeleteWorkerPod(name, uid):
            await kube.client.delete(PODS, namespace, name, uid=uid)
        case actions.DeleteSandboxes():
            await kube.delete_sandboxes(me)
        case actions.DeleteJob():
            await kube.client.delete(ROLLOUT_JOBS, namespace, me.name, uid=me.uid)
        case actions.RecordEvent():
            await _record(namespace, _event(action, job), kube)
    return None


async def ensure_policy(namespace: str, kube: Kube) -> None:
    """Create the policy that isolates the namespace's sandboxes, or repair it."""
    wanted = resources.network_policy(namespace)
    name = resources.POLICY_NAME
    async with kube.policies:
        policy = await kube.client.ensure(POLICIES, namespace, name, wanted)
        denies = policy.spec == wanted["spec"]
        if denies and not policy.metadata.owner_references:
            return
        if not _is_managed(policy.metadata):
            if denies:
                return
            raise _foreign(POLICIES, policy.metadata)
        # With uid and version, concurrent changes by others are not overwritten.
        head: Json = {
            "name": name,
            "namespace": namespace,
            "labels": {**resources.POLICY_LABELS},
            "uid": policy.metadata.uid,
            "resourceVersion": policy.metadata.resource_version,
        }
        try:
            await kube.client.replace(POLICIES, namespace, name, {**wanted, "metadata": head})
        except ApiError as error:
            if not error.is_absence:
                raise


async def release_policy(namespace: str, kube: Kube) -> bool:
    """Delete the policy if nothing in the namespace needs it; return whether that is settled."""
    name = resources.POLICY_NAME
    async with kube.policies:
        found = await kube.client.find(POLICIES, namespace, name)
        if found is None or await kube.client.has(ROLLOUT_JOBS, namespace):
            return True
        policy = found.metadata
        if not resources.POLICY_LABELS.items() <= policy.labels.items():
            return True
        if await kube.client.has(PODS, namespace, labels=resources.SANDBOXES):
            return False
        version = policy.resource_version
        await kube.client.delete(POLICIES, namespace, name, uid=policy.uid, version=version)
        return True


async def _apply_prerequisites(me: Metadata, annotations: Mapping[str, str], kube: Kube) -> None:
    name = resources.access_name(me.uid)
    account = resources.service_account(me, annotations)
    await _own(SERVICE_ACCOUNTS, me, account, kube=kube, name=name)
    wanted = resources.role_binding(me)
    found = await _own(ROLE_BINDINGS, me, wanted, kube=kube, name=name)
    expected = msgspec.convert(wanted, Binding)
    if (found.role_ref, found.subjects) != (expected.role_ref, expected.subjects):
        raise _foreign(ROLE_BINDINGS, found.metadata)
    await ensure_policy(me.namespace, kube)


async def _create_workers(me: Metadata, manifest: Json, *, kube: Kube) -> WorkerJob:
    name = resources.workers_name(me.name)
    try:
        return await _own(JOBS, me, manifest, kube=kube, name=name)
    except ApiError as error:
        # Kubernetes before 1.34 forbids the field; 1.34 drops it.
        if not (error.invalid and "restartPolicy" in error.message):
            raise
    older = resources.without_restarts(manifest)
    return await _own(JOBS, me, older, kube=kube, name=name)


async def _own(kind: Kind[_T], me: Metadata, manifest: Json, *, kube: Kube, name: str) -> _T:
    """Return the job's own object of this name, creating it if there is none."""
    found = await kube.client.ensure(kind, me.namespace, name, manifest)
    if found.metadata.controller_uid != me.uid:
        raise _foreign(kind, found.metadata)
    return found


def _is_managed(policy: Metadata) -> bool:
    label, value = next(iter(resources.POLICY_LABELS.items()))
    return policy.labels.get(label) == value


def _foreign(kind: Kind[_T], found: Metadata) -> ClusterError:
    what = f"{kind.plural}/{found.name}"
    if found.deletion_timestamp is not None:
        return ClusterError(
            f"{what} is still being deleted",
            why="the workers of a former job of this name drain",
            fix="they take a minute at most",
        )
    return ClusterError(
        f"{what} already exists",
        why="it does not belong to this RolloutJob, which leaves it alone",
        fix=f"`kubectl -n {found.namespace} delete {what}` if nothing needs it, or rename the "
        "RolloutJob",
    )


async def _record(namespace: str, event: Json, kube: Kube) -> None:
    try:
        await kube.client.create(EVENTS, namespace, event)
    except ApiError as error:
        if not error.already_exists:
            raise


def _event(event: RecordEvent, job: ObservedJob) -> Json:
    """Build the Event, named by its content so that a repetition is the same Event."""
    me = job.metadata
    time = event.at.strftime("%Y-%m-%dT%H:%M:%SZ")
    content = f"{me.uid} {event.type} {event.reason} {time}"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{me.name}.{hashlib.sha256(content.encode()).hexdigest()[:16]}",
            "namespace": me.namespace,
        },
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": me.name,
            "namespace": me.namespace,
            "uid": me.uid,
        },
        "type": event.type.value,
        "reason": event.reason,
        "message": event.message[:1024],
        "source": {"component": "swe-rollout-operator"},
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
    }


def why(error: Exception) -> str:
    """Summarise a refusal for a condition, from the API server's message or our own error."""
    match error:
        case ApiError(lacks_right=True):
            return f"{error.message}; {error.fix}"
        case ApiError():
            return error.message
        case ClusterError():
            return f"{error.what}: {error.why}; {error.fix}".strip("; ")
        case _:
            return f"{type(error).__name__}: {error}"
