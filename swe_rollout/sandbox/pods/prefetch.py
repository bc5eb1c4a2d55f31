"""Images brought to the nodes before a job needs them: a pod on every node that sandboxes may use.

A DaemonSet for a few images at a time, with a container for each: nodes that come meanwhile are
served too, and what the job's template says of nodes and pull secrets holds. Its pods are as closed
as sandboxes, and are removed when every image is there or known not to come.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from swe_rollout.cluster import manifests
from swe_rollout.sandbox.base import Role, SandboxRequest
from swe_rollout.sandbox.pods import pod_spec
from swe_rollout.sandbox.pods.diagnose import PULL_REASONS
from swe_rollout.sandbox.pods.provider import cut_off
from swe_rollout.sandbox.pods.template import check_template, with_template
from swe_rollout.trajectory import EpisodeId

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from swe_rollout.cluster.client import ClusterClient
    from swe_rollout.cluster.objects import ContainerStatus, Pod
    from swe_rollout.spec.job import PodSandbox

IMAGES_A_POD: Final = 8
_LABEL: Final = f"{pod_spec.PREFIX}/prefetch"
_CONTAINER: Final = "image-"
_LITTLE: Final = {"requests": {"cpu": "1m", "memory": "8Mi"}, "limits": {"memory": "64Mi"}}
"""A shell that sleeps."""
_LOOK_S: Final = 1.0
_SETTLE_S: Final = 30.0
"""The kubelet tries again after 10 s, then 20 s: a registry may hiccup."""
_CERTAIN: Final = frozenset({"InvalidImageName", "ErrImageNeverPull"})
_REFUSALS: Final = PULL_REASONS | _CERTAIN
_NODES_S: Final = 10.0
"""How long a DaemonSet may find no node at all."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """What became of one image."""

    image: str
    nodes: int
    """That have it now."""
    problem: str = ""
    """Why another node has it not; one of the reasons."""


async def prefetch(
    client: ClusterClient, images: Iterable[str], sandbox: PodSandbox, *, within_s: float
) -> AsyncIterator[Fetched]:
    """Bring each image to the nodes, and tell of it; `within_s` is for a few of them at a time.

    Raises ClusterError when the cluster does not let us, PrerequisiteError for a template that a
    sandbox can't have.
    """
    check_template(sandbox.template)
    namespace = sandbox.namespace or client.namespace
    await cut_off(client, namespace)
    todo = sorted(set(images))
    for start in range(0, len(todo), IMAGES_A_POD):
        few = todo[start : start + IMAGES_A_POD]
        name = f"swe-rollout-prefetch-{secrets.token_hex(4)}"
        manifest = daemon_set(few, sandbox, name=name)
        await client.create_daemon_set(namespace, manifest)
        try:
            found = await _Watch(client, namespace, name, few).fetched(within_s)
        finally:
            await asyncio.shield(client.delete_daemon_set(namespace, name))
        for each in found:
            yield each


def daemon_set(
    images: Sequence[str], sandbox: PodSandbox, *, name: str
) -> manifests.DaemonSetManifest:
    """The DaemonSet whose pods have a container of each image, on the nodes that sandboxes use."""
    nobody = SandboxRequest(EpisodeId(name, "", 0), Role.AGENT, images[0], "/")
    owner = pod_spec.RunOwner(run=name, started="")
    made = with_template(pod_spec.pod_manifest(nobody, sandbox, owner), sandbox.template)
    body = msgspec.to_builtins(made.spec)
    (only,) = (each for each in body["containers"] if each["name"] == pod_spec.CONTAINER)
    body["containers"] = [
        {**only, "name": f"{_CONTAINER}{number}", "image": each, "resources": _LITTLE}
        for number, each in enumerate(images)
    ]
    del body["restartPolicy"], body["activeDeadlineSeconds"]
    labels = {
        **pod_spec.MANAGED_BY,
        _LABEL: name,
        # Which the NetworkPolicy cuts off.
        pod_spec.ROLE_LABEL: Role.AGENT.value,
    }
    return manifests.DaemonSetManifest(
        metadata=manifests.Named(name=name, labels=labels),
        spec=manifests.DaemonSetBody(
            selector=manifests.MatchLabels(match_labels={_LABEL: name}),
            template=manifests.TemplatedPod(
                metadata=manifests.Named(name="", labels=labels), spec=body
            ),
        ),
    )


@dataclass(slots=True)
class _Watch:
    """Looks at the pods of one DaemonSet until nothing more is to come."""

    client: ClusterClient
    namespace: str
    name: str
    images: Sequence[str]
    since: dict[tuple[str, str], float] = field(default_factory=dict)
    """When a container's image was first said not to come; by pod and container."""

    async def fetched(self, within_s: float) -> list[Fetched]:
        """What became of each image, at the latest after `within_s`."""
        began = time.monotonic()
        while True:
            pods = await self._pods()
            nodes = await self._nodes()
            waited_s = time.monotonic() - began
            is_settled = nodes is not None and (nodes > 0 or waited_s > _NODES_S)
            found = [self._fetched(number, pods) for number in range(len(self.images))]
            wanted = nodes or 0
            if is_settled and all(done + len(bad) >= wanted for done, bad, _ in found):
                break
            if waited_s > within_s:
                break
            await asyncio.sleep(_LOOK_S)
        return [
            Fetched(image, done, _problem(wanted, done, bad, waiting))
            for image, (done, bad, waiting) in zip(self.images, found, strict=True)
        ]

    async def _pods(self) -> list[Pod]:
        listed = await self.client.list_pods(self.namespace, f"{_LABEL}={self.name}")
        return [pod for pod in listed.items or [] if pod.metadata.deletion_timestamp is None]

    async def _nodes(self) -> int | None:
        """How many should have a pod; none: nobody has counted yet."""
        status = (await self.client.get_daemon_set(self.namespace, self.name)).status
        return status.desired_number_scheduled if status.observed_generation else None

    def _fetched(self, number: int, pods: Sequence[Pod]) -> tuple[int, list[str], list[str]]:
        """On how many nodes the image is, and why it will not be, or is not yet, on others."""
        done, bad, waiting = 0, list[str](), list[str]()
        for pod in pods:
            found = next((c for c in pod.status.container_statuses if _number(c) == number), None)
            if found is not None and found.image_id:
                done += 1
            elif found is not None and found.state.waiting is not None:
                reason = f"{found.state.waiting.reason}: {found.state.waiting.message}"
                reason = f"node {pod.spec.node_name or '(none yet)'}: {reason}"
                stands = self._stands(pod, found)
                (bad if stands else waiting).append(reason)
            else:
                scheduled = pod.status.condition("PodScheduled")
                waiting.append(
                    (scheduled and scheduled.message) or f"pod {pod.metadata.name} waits"
                )
        return done, bad, waiting

    def _stands(self, pod: Pod, container: ContainerStatus) -> bool:
        """Whether a refusal has stood for so long that it is believed."""
        waiting = container.state.waiting
        if waiting is None or waiting.reason not in _REFUSALS:
            return False
        first = self.since.setdefault((pod.metadata.uid, container.name), time.monotonic())
        return time.monotonic() - first > _SETTLE_S or waiting.reason in _CERTAIN


def _number(container: ContainerStatus) -> int:
    return int(container.name.removeprefix(_CONTAINER))


def _problem(wanted: int, done: int, bad: Sequence[str], waiting: Sequence[str]) -> str:
    if wanted == 0:
        return "no node takes the sandboxes of this job"
    if done >= wanted:
        return ""
    return next(iter((*bad, *waiting)), "its pod has not started in time")
