"""Installation: wait until the cluster serves RolloutJobs and the operator is available.

`swe_rollout.cli.install` applies the manifests; this module waits for them to take effect and
explains what keeps the operator from starting.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterator
from typing import Final
from urllib.parse import quote

import msgspec

from swe_rollout.cluster.api_error import ApiError
from swe_rollout.cluster.client import ClusterClient
from swe_rollout.cluster.objects import KubernetesCondition, Metadata, Pod, Waiting
from swe_rollout.errors import PrerequisiteError

NAMESPACE: Final = "swe-rollout-system"
OPERATOR: Final = "swe-rollout-operator"
SELECTOR: Final = f"app.kubernetes.io/name={OPERATOR}"

_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_POLL_S = 0.5
_SETTLE_S = 5.0
"""How long a fatal reason must persist: an image may just be being loaded."""
_IMAGE_REASONS = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"}
)
_FATAL_REASONS = _IMAGE_REASONS | {
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
}


class _Status(msgspec.Struct, rename="camel", frozen=True):
    """The status of a definition or a Deployment."""

    conditions: list[KubernetesCondition] = []
    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    available_replicas: int = 0
    stored_versions: list[str] = []
    """Of a definition: those in which objects may still be stored."""


class _Object(msgspec.Struct, frozen=True):
    """A definition or a Deployment."""

    metadata: Metadata
    status: _Status = _Status()

    def is_true(self, kind: str) -> bool:
        return any(each.type == kind and each.status == "True" for each in self.status.conditions)

    @property
    def is_rolled_out(self) -> bool:
        """Whether all pods run the newest spec and are available."""
        status = self.status
        return (
            status.observed_generation >= self.metadata.generation
            and status.updated_replicas == status.replicas == status.available_replicas > 0
        )


class Installation:
    """The installation of swe-rollout on one cluster."""

    def __init__(self, client: ClusterClient, *, namespace: str = NAMESPACE) -> None:
        self._client = client
        self._namespace = namespace

    async def check_stored_versions(self, definition: str, known: Collection[str]) -> None:
        """Refuse a definition that lacks a version in which jobs are stored, before it is applied.

        That is an installation of an older version of swe-rollout over a newer one.
        """
        path = f"{_DEFINITIONS}/{quote(definition)}"
        try:
            found = await self._read(path, f"read the definition {definition}")
        except ApiError as error:
            if error.not_found:
                return
            raise
        unknown = sorted({*found.status.stored_versions} - {*known})
        if unknown:
            raise PrerequisiteError(
                f"jobs of this cluster are stored as {', '.join(unknown)}",
                why=f"this version of swe-rollout knows {', '.join(sorted(known))} only",
                fix="install with the newer version of swe-rollout that was here last",
            )

    async def wait_until_served(self, definition: str, *, timeout_s: float) -> None:
        """Wait until the cluster serves the kind of the CRD `definition`."""
        path = f"{_DEFINITIONS}/{quote(definition)}"
        end = time.monotonic() + timeout_s
        while True:
            found = await self._read(path, f"read the definition {definition}")
            if found.metadata.deletion_timestamp is not None:
                raise PrerequisiteError(
                    f"{definition} is being deleted",
                    why="somebody uninstalls swe-rollout at the same time",
                    fix="wait until they are done, then run `swe-rollout install` again",
                )
            if found.is_true("Established"):
                return
            if time.monotonic() > end:
                reasons = [f"{each.reason}: {each.message}" for each in found.status.conditions]
                raise PrerequisiteError(
                    f"the cluster does not serve {definition}",
                    why="; ".join(reasons) or f"not established after {timeout_s:g} s",
                    fix=f"`kubectl describe crd {definition}` shows what prevents it",
                )
            await asyncio.sleep(_POLL_S)

    async def wait_until_available(self, *, timeout_s: float) -> None:
        """Wait until the operator's Deployment is rolled out; raises PrerequisiteError."""
        path = f"/apis/apps/v1/namespaces/{self._namespace}/deployments/{OPERATOR}"
        end = time.monotonic() + timeout_s
        last_reason, since = "", 0.0
        while not (found := await self._read(path, "read the operator's Deployment")).is_rolled_out:
            pods = await self._pods()
            now, reason = time.monotonic(), _waiting_reason(pods)
            if reason != last_reason:
                last_reason, since = reason, now
            if now > end or (reason in _FATAL_REASONS and now > since + _SETTLE_S):
                raise _unavailable(found, pods, timeout_s)
            await asyncio.sleep(_POLL_S)

    async def _read(self, path: str, doing: str) -> _Object:
        data = await self._client.transport.request("GET", path, doing=doing)
        return msgspec.json.decode(data, type=_Object)

    async def _pods(self) -> list[Pod]:
        """List the operator's pods that are not being deleted; none without permission."""
        try:
            found = await self._client.list_pods(self._namespace, SELECTOR)
        except ApiError as error:
            if error.forbidden:
                return []
            raise
        return [pod for pod in found.items or [] if pod.metadata.deletion_timestamp is None]


def _waiting_reason(pods: list[Pod]) -> str:
    """Return why a container waits, as Kubernetes' one-word reason; empty when none does."""
    return next((each.reason for each in map(_waiting, pods) if each), "")


def _waiting(pod: Pod) -> Waiting | None:
    return pod.container.state.waiting if pod.container is not None else None


def _unavailable(found: _Object, pods: list[Pod], timeout_s: float) -> PrerequisiteError:
    reasons = [line for pod in pods for line in _pod_problems(pod)]
    if not reasons:
        reasons = [
            f"{each.reason}: {each.message}"
            for each in found.status.conditions
            if each.type == "ReplicaFailure" or each.status == "False"
        ]
    fix = f"`kubectl logs -n {found.metadata.namespace} deployment/{OPERATOR}` shows more"
    if _waiting_reason(pods) in _IMAGE_REASONS:
        fix = "use an image that the nodes can pull: `swe-rollout install --image IMAGE`"
    return PrerequisiteError(
        "the operator does not start",
        why="; ".join(dict.fromkeys(reasons)) or f"it is not available after {timeout_s:g} s",
        fix=fix,
    )


def _pod_problems(pod: Pod) -> Iterator[str]:
    """Explain why a pod does not run: reasons of the cluster, then its last termination message."""
    if waiting := _waiting(pod):
        yield f"{waiting.reason}: {waiting.message}"
    scheduled = pod.status.condition("PodScheduled")
    if scheduled is not None and scheduled.status == "False":
        yield f"{scheduled.reason}: {scheduled.message}"
    ended = pod.container.last_state.terminated if pod.container is not None else None
    if ended is not None and (lines := ended.message.strip().splitlines()):
        yield f"its last message: {lines[-1]}"
