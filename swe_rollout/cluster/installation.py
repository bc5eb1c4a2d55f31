"""Installation: whether the cluster knows RolloutJobs and an operator takes care of them.

What is installed is the command line's to say (`swe_rollout.cli.install`); here it is waited for,
and what keeps the operator from coming up is put into words.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import msgspec

from swe_rollout.cluster.api_error import ApiError
from swe_rollout.cluster.objects import Condition, Metadata
from swe_rollout.errors import PrerequisiteError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from swe_rollout.cluster.client import ClusterClient
    from swe_rollout.cluster.objects import Pod, Waiting

NAMESPACE: Final = "swe-rollout-system"
OPERATOR: Final = "swe-rollout-operator"
SELECTOR: Final = f"app.kubernetes.io/name={OPERATOR}"

_POLL_S = 0.5
_STANDING_S = 5.0
"""How long the operator may be in trouble before it is believed: images are loaded at times."""
_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"})
_HOPELESS = _IMAGE | {"CrashLoopBackOff", "CreateContainerConfigError", "CreateContainerError"}


class _Status(msgspec.Struct, rename="camel", frozen=True):
    """How a definition or a Deployment is."""

    conditions: list[Condition] = []
    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    available_replicas: int = 0


class _Generation(Metadata, frozen=True):
    """Metadata with the number of the spec."""

    generation: int = 0


class _Object(msgspec.Struct, frozen=True):
    """A definition or a Deployment."""

    metadata: _Generation
    status: _Status = _Status()

    def is_true(self, kind: str) -> bool:
        """Whether a condition holds."""
        return any(each.type == kind and each.status == "True" for each in self.status.conditions)

    @property
    def is_rolled_out(self) -> bool:
        """Whether the pods of the newest spec, and no others, are available."""
        status = self.status
        return (
            status.observed_generation >= self.metadata.generation
            and status.updated_replicas == status.replicas == status.available_replicas > 0
        )


class Installation:
    """What is installed on one cluster."""

    def __init__(self, client: ClusterClient, *, namespace: str = NAMESPACE) -> None:
        self._client = client
        self._namespace = namespace

    async def until_served(self, definition: str, *, timeout_s: float) -> None:
        """Wait until the cluster serves the kind that `definition` defines."""
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{quote(definition)}"
        end = time.monotonic() + timeout_s
        while True:
            found = await self._read(path, f"read the definition {definition}")
            if found.is_true("Established"):
                return
            if time.monotonic() > end:
                said = [f"{each.reason}: {each.message}" for each in found.status.conditions]
                raise PrerequisiteError(
                    f"the cluster does not serve {definition}",
                    why="; ".join(said) or f"not established after {timeout_s:g} s",
                    fix=f"`kubectl describe crd {definition}` tells what stands in the way",
                )
            await asyncio.sleep(_POLL_S)

    async def until_available(self, *, timeout_s: float) -> None:
        """Wait until the operator runs as its Deployment says; raises PrerequisiteError."""
        path = f"/apis/apps/v1/namespaces/{self._namespace}/deployments/{OPERATOR}"
        end = time.monotonic() + timeout_s
        trouble, since = "", 0.0
        while not (found := await self._read(path, "read the operator's Deployment")).is_rolled_out:
            pods = await self._pods()
            now, reason = time.monotonic(), _trouble(pods)
            if reason != trouble:
                trouble, since = reason, now
            if now > end or (reason in _HOPELESS and now > since + _STANDING_S):
                raise _unavailable(found, pods, timeout_s)
            await asyncio.sleep(_POLL_S)

    async def _read(self, path: str, doing: str) -> _Object:
        data = await self._client.transport.request("GET", path, doing=doing)
        return msgspec.json.decode(data, type=_Object)

    async def _pods(self) -> list[Pod]:
        """Those that should stay; none where we may not see them."""
        try:
            found = await self._client.list_pods(self._namespace, SELECTOR)
        except ApiError as error:
            if error.forbidden:
                return []
            raise
        return [pod for pod in found.items or [] if pod.metadata.deletion_timestamp is None]


def _trouble(pods: list[Pod]) -> str:
    """Why a container waits, in Kubernetes' one word."""
    return next((each.reason for each in map(_waiting, pods) if each), "")


def _waiting(pod: Pod) -> Waiting | None:
    return pod.container.state.waiting if pod.container is not None else None


def _unavailable(found: _Object, pods: list[Pod], timeout_s: float) -> PrerequisiteError:
    said = [line for pod in pods for line in _said_of(pod)]
    if not said:
        said = [
            f"{each.reason}: {each.message}"
            for each in found.status.conditions
            if each.type == "ReplicaFailure" or each.status == "False"
        ]
    fix = f"`kubectl logs -n {found.metadata.namespace} deployment/{OPERATOR}` tells more"
    if _trouble(pods) in _IMAGE:
        fix = "name an image that the nodes can have: `swe-rollout install --image IMAGE`"
    return PrerequisiteError(
        "the operator does not come up",
        why="; ".join(dict.fromkeys(said)) or f"it is not available after {timeout_s:g} s",
        fix=fix,
    )


def _said_of(pod: Pod) -> Iterator[str]:
    """What the cluster says of a pod that does not run, and its last own words."""
    if waiting := _waiting(pod):
        yield f"{waiting.reason}: {waiting.message}"
    scheduled = pod.status.condition("PodScheduled")
    if scheduled is not None and scheduled.status == "False":
        yield f"{scheduled.reason}: {scheduled.message}"
    ended = pod.container.last_state.terminated if pod.container is not None else None
    if ended is not None and (lines := ended.message.strip().splitlines()):
        yield f"its last words: {lines[-1]}"
