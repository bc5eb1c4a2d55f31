"""Pull images before a job needs them, with a pod on every node that sandboxes may use.

A DaemonSet handles a few images at a time, with one container each: nodes that are added meanwhile
are served too, and the job's template applies with its node selectors and pull secrets. Its pods
are as isolated as sandboxes, and are deleted when every image is pulled or has failed for good.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import structlog

from swe_rollout.cluster.api_error import ApiError
from swe_rollout.cluster.client import ClusterClient
from swe_rollout.cluster.objects import (
    DAEMON_SETS,
    PODS,
    ContainerStatus,
    Head,
    Json,
    Metadata,
    Pod,
)
from swe_rollout.cluster.removal import delete_each
from swe_rollout.sandbox.base import Role, SandboxRequest
from swe_rollout.sandbox.pods import pod_spec
from swe_rollout.sandbox.pods.diagnose import PULL_REASONS
from swe_rollout.sandbox.pods.isolation import ensure_isolation
from swe_rollout.spec.sandbox import PodSandbox
from swe_rollout.types.episode import EpisodeId

log = structlog.get_logger()

IMAGES_PER_POD: Final = 8
_LABEL: Final = f"{pod_spec.PREFIX}/prefetch"
_SECONDS: Final = f"{pod_spec.PREFIX}/prefetch-seconds"
"""Label: how long after its creation a DaemonSet is in use at most."""
_NUMBER: Final = re.compile("[0-9]{1,9}")
_END_S: Final = 300.0
"""How long its deletion may take, if the API server has to be waited for."""
_CONTAINER: Final = "image-"
_RESOURCES: Final = {"requests": {"cpu": "1m", "memory": "8Mi"}, "limits": {"memory": "64Mi"}}
"""Enough for a sleeping shell."""
_POLL_S: Final = 1.0
_SETTLE_S: Final = 30.0
"""The kubelet retries after 10 s, then 20 s: a registry may fail temporarily."""
_PERMANENT: Final = frozenset({"InvalidImageName", "ErrImageNeverPull"})
_FAILURE_REASONS: Final = PULL_REASONS | _PERMANENT
_NODES_S: Final = 10.0
"""How long a DaemonSet may match no node at all."""


@dataclass(frozen=True, slots=True)
class PrefetchedImage:
    """The result for one image."""

    image: str
    nodes: int
    """How many nodes have it now."""
    problem: str = ""
    """Why another node lacks it; one reason of possibly several."""


async def prefetch(
    client: ClusterClient, images: Iterable[str], sandbox: PodSandbox, *, within_s: float
) -> AsyncIterator[PrefetchedImage]:
    """Pull each image on the nodes and yield its result; each DaemonSet gets `within_s`.

    Raises ClusterError when the cluster refuses.
    """
    namespace = sandbox.namespace or client.namespace
    await ensure_isolation(client, namespace)
    await _delete_left(client, namespace)
    todo = sorted(set(images))
    for start in range(0, len(todo), IMAGES_PER_POD):
        few = todo[start : start + IMAGES_PER_POD]
        name = f"swe-rollout-prefetch-{secrets.token_hex(4)}"
        manifest = daemon_set(few, sandbox, name=name, within_s=within_s)
        try:
            await client.create(DAEMON_SETS, namespace, manifest)
            found = await _DaemonSetProgress(client, namespace, name, few).until_settled(within_s)
        finally:
            await asyncio.shield(client.delete(DAEMON_SETS, namespace, name, grace_s=1))
        for each in found:
            yield each


async def _delete_left(client: ClusterClient, namespace: str) -> None:
    """Delete what killed processes have left in the namespace, which nothing else ends."""
    now = client.transport.now()

    def expired(found: Head) -> Metadata | None:
        created, lasts = found.metadata.creation_timestamp, found.metadata.labels.get(_SECONDS, "")
        if created is None or not _NUMBER.fullmatch(lasts):
            return None
        age = now - datetime.fromisoformat(created)
        return found.metadata if age > timedelta(seconds=int(lasts)) else None

    try:
        heads = DAEMON_SETS.heads
        await delete_each(client, heads, namespace, labels=_LABEL, chosen=expired, grace_s=1)
    except ApiError as error:
        log.warning("prefetch_not_cleaned", namespace=namespace, why=str(error))


def daemon_set(images: Sequence[str], sandbox: PodSandbox, *, name: str, within_s: float) -> Json:
    """Build the DaemonSet whose pods have a container for each image."""
    placeholder = SandboxRequest(EpisodeId(name, "", 0), Role.AGENT, images[0], "/")
    owner = pod_spec.RunIdentity(run=name, started="")
    made = pod_spec.with_template(
        pod_spec.pod_manifest(placeholder, sandbox, owner), sandbox.template
    )
    (only,) = made["spec"]["containers"]
    containers = [
        {**only, "name": f"{_CONTAINER}{number}", "image": each, "resources": _RESOURCES}
        for number, each in enumerate(images)
    ]
    spec = {**made["spec"], "containers": containers}
    del spec["restartPolicy"], spec["activeDeadlineSeconds"]
    labels = {
        **pod_spec.MANAGED_BY,
        _LABEL: name,
        # The NetworkPolicy selects pods by this label.
        pod_spec.ROLE_LABEL: Role.AGENT.value,
    }
    lasts = {_SECONDS: str(round(within_s + _END_S))}
    return {
        "metadata": {"name": name, "labels": labels | lasts},
        "spec": {
            "selector": {"matchLabels": {_LABEL: name}},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


@dataclass(slots=True)
class _DaemonSetProgress:
    """Polls the pods of one DaemonSet until every image is pulled or has failed."""

    client: ClusterClient
    namespace: str
    name: str
    images: Sequence[str]
    since: dict[tuple[str, str], float] = field(default_factory=dict)
    """When a container's image was first reported as failed, by pod and container."""

    async def until_settled(self, within_s: float) -> list[PrefetchedImage]:
        """Return the result for each image, after `within_s` at the latest."""
        began = time.monotonic()
        while True:
            pods = await self._pods()
            nodes = await self._nodes()
            waited_s = time.monotonic() - began
            is_settled = nodes is not None and (nodes > 0 or waited_s > _NODES_S)
            found = [self._count(number, pods) for number in range(len(self.images))]
            wanted = nodes or 0
            if is_settled and all(done + len(bad) >= wanted for done, bad, _ in found):
                break
            if waited_s > within_s:
                break
            await asyncio.sleep(_POLL_S)
        return [
            PrefetchedImage(image, done, _problem(wanted, done, bad, waiting))
            for image, (done, bad, waiting) in zip(self.images, found, strict=True)
        ]

    async def _pods(self) -> list[Pod]:
        listed = await self.client.list(PODS, self.namespace, labels=f"{_LABEL}={self.name}")
        return [pod for pod in listed.items if pod.metadata.deletion_timestamp is None]

    async def _nodes(self) -> int | None:
        """Return how many nodes should have a pod; None until the controller has counted them."""
        status = (await self.client.get(DAEMON_SETS, self.namespace, self.name)).status
        return status.desired_number_scheduled if status.observed_generation else None

    def _count(self, number: int, pods: Sequence[Pod]) -> tuple[int, list[str], list[str]]:
        """Count the nodes with the image; list why others failed and why others still wait."""
        done, bad, waiting = 0, list[str](), list[str]()
        for pod in pods:
            found = next((c for c in pod.status.container_statuses if _number(c) == number), None)
            if found is not None and found.image_id:
                done += 1
            elif found is not None and found.state.waiting is not None:
                reason = f"{found.state.waiting.reason}: {found.state.waiting.message}"
                reason = f"node {pod.spec.node_name or '(none yet)'}: {reason}"
                (bad if self._has_failed(pod, found) else waiting).append(reason)
            else:
                scheduled = pod.status.condition("PodScheduled")
                waiting.append(
                    (scheduled and scheduled.message) or f"pod {pod.metadata.name} waits"
                )
        return done, bad, waiting

    def _has_failed(self, pod: Pod, container: ContainerStatus) -> bool:
        """Whether a pull failure has persisted long enough to be reported."""
        waiting = container.state.waiting
        if waiting is None or waiting.reason not in _FAILURE_REASONS:
            return False
        first = self.since.setdefault((pod.metadata.uid, container.name), time.monotonic())
        return time.monotonic() - first > _SETTLE_S or waiting.reason in _PERMANENT


def _number(container: ContainerStatus) -> int:
    return int(container.name.removeprefix(_CONTAINER))


def _problem(wanted: int, done: int, bad: Sequence[str], waiting: Sequence[str]) -> str:
    if wanted == 0:
        return "no node matches the node selectors and tolerations of this job's sandboxes"
    if done >= wanted:
        return ""
    return next(iter((*bad, *waiting)), "its pod did not start in time")
