"""The sandboxes of a RolloutJob: local, pods, kodo, or a user's own back end."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from swe_rollout.spec.addresses import LocalPath
from swe_rollout.spec.bounds import Cpu, Memory, Seconds, ShortText, Storage
from swe_rollout.spec.model import Model, OneOf, Use, added_variant, unset, variant
from swe_rollout.spec.pod_template import NodeLabels, PodTemplate

_UNITS: Final = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}
_SIZE: Final = re.compile(r"([1-9][0-9]{0,5})(Ki|Mi|Gi|Ti)")
_LEAST_BYTES: Final = 1 << 20


def _size(value: str) -> str:
    if _SIZE.fullmatch(value) is None or size_bytes(value) < _LEAST_BYTES:
        raise ValueError("a size of at least 1Mi, such as 512Mi or 4Gi")
    return value


Size = Annotated[str, StringConstraints(max_length=16), AfterValidator(_size)]


def size_bytes(size: str) -> int:
    """Return a size such as `4Gi` in bytes."""
    return int(size[:-2]) * _UNITS[size[-2:]]


ImageReference = Annotated[str, StringConstraints(pattern=r"^\S{1,512}$")]


class CheckoutSpec(Model):
    """A repository and a Python environment on this machine, in place of a task's image."""

    workdir: Annotated[LocalPath, StringConstraints(min_length=1)]
    """The checked-out repository, at the task's base commit. Sandboxes see a copy."""
    python: Annotated[LocalPath, StringConstraints(min_length=1)]
    """The interpreter of the environment in which its tests run, such as `VENV/bin/python`."""


CLAIM_PREFIX: Final = "swe-rollout-bundle-"
"""By its name a claim is marked as one that any job of its namespace may read."""
BundleClaim = Annotated[
    str, StringConstraints(pattern=rf"^{CLAIM_PREFIX}[a-z0-9-]{{0,43}}[a-z0-9]$")
]
BundlePath = Annotated[str, StringConstraints(pattern=r"^/opt/[\w-][\w.-]{0,62}$")]
Network = Literal["none", "requested"]
"""Whether tasks that ask for a network get one; others never do."""


class LocalSandbox(Model):
    """Namespaces on this machine."""

    images: LocalPath | None = None
    """Folder with prepared images; by default the user's cache."""
    isolation: Literal["auto", "bubblewrap", "none"] = "auto"
    """`auto` uses bubblewrap or, if that is missing, plain directories for scripted policies only;
    with `none`, commands run in plain directories and can read and change all that you can."""
    memory: Size = "4Gi"
    """Memory limit of one sandbox, for its processes and the files that they write."""
    disk: Size = "2Gi"
    """Limit for the files that one sandbox writes; less than `memory`, where they lie."""
    processes: Annotated[int, Field(ge=16, le=1 << 20)] = 1024
    """The most concurrent processes and threads in one sandbox."""
    network: Network = Field(default="none", exclude_if=lambda value: value == "none")
    """With `requested`, sandboxes of tasks that ask for a network share this machine's, with all
    services on it; with `none`, no sandbox has a network."""
    checkout: CheckoutSpec | None = unset()
    """A checkout to use for one task in place of its image; by default images are used."""
    bundles: Annotated[
        dict[BundlePath, LocalPath], Field(max_length=16, exclude_if=lambda value: not value)
    ] = Field(default_factory=dict)
    """Folders of this machine that agents see, read-only, by their paths there: `/opt/harness`."""

    @model_validator(mode="after")
    def _memory_holds_files(self) -> Self:
        if size_bytes(self.disk) >= size_bytes(self.memory):
            raise ValueError(f"disk {self.disk} must be less than memory {self.memory}")
        return self


class Resources(Model):
    """Resources of a pod; memory is requested in full."""

    cpu: Cpu = "250m"
    """CPU request, as a Kubernetes quantity: `2`, `500m`. Small, because agents mostly wait for the
    engine."""
    cpu_limit: Cpu | None = None
    """CPU limit; unlimited by default."""
    memory: Memory = "2Gi"
    """Memory request and limit; a container that exceeds it is killed."""
    ephemeral_storage: Storage = "4Gi"
    """Disk request and limit for what the pod writes."""


class WarmPods(Model):
    """Pods that each worker starts before its episodes need them.

    A waiting pod holds its resources, and costs the API server an extra write when claimed.
    """

    cap: Annotated[int, Field(ge=0, le=1000)] = 0
    """The most pods starting or waiting at a time; 0 disables the warm pool."""
    per_image: Annotated[int, Field(ge=1, le=1000)] = 4
    """The most of these pods per image."""
    expiry_seconds: Seconds = 600.0
    """How long a pod waits; while its image is needed, a new pod replaces it."""


class PodSandbox(Model):
    """One Kubernetes pod for each sandbox."""

    namespace: ShortText | None = None
    """The pods' namespace; by default the current context's."""
    context: ShortText | None = None
    """A kubeconfig context; by default the current one, or the cluster this runs in."""
    resources: Resources = Resources()
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """When the node pulls the image, as in a pod."""
    runtime_class: ShortText | None = None
    """A hardened runtime, such as `gvisor`."""
    run_as_user: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    """For tasks that need no root: the pod runs as this user without capabilities and meets Pod
    Security's level `restricted`; the workdir must belong to the user. By default the image's user
    is used, with the few capabilities that test suites need (level `baseline`)."""
    start_seconds: Seconds = 300.0
    """Time limit from creation to the first command."""
    network: Network = Field(default="none", exclude_if=lambda value: value == "none")
    """With `requested`, pods of tasks that ask for a network get DNS and the label
    `swe-rollout.dev/network: requested`, for which the namespace's administrator may allow traffic
    by a NetworkPolicy; with `none`, no pod gets a network."""
    warm: WarmPods = WarmPods()
    """Pods kept ready for the next episodes."""
    bundles: Annotated[
        dict[BundlePath, ImageReference], Field(max_length=16, exclude_if=lambda value: not value)
    ] = Field(default_factory=dict)
    """Images whose files agents see, read-only, by their paths there: `/opt/harness`. Kubernetes
    mounts them as image volumes: 1.35, or 1.31 with the feature gate `ImageVolume`."""
    bundle_claims: Annotated[
        dict[BundlePath, BundleClaim], Field(max_length=16, exclude_if=lambda value: not value)
    ] = Field(default_factory=dict)
    """The same by claims of volumes, for clusters without image volumes: each node has one copy,
    made by what `swe-rollout harness manifest` prints."""
    template: PodTemplate | None = None
    """Parts of a pod template merged over the hardened defaults: labels, annotations, node
    selection, tolerations, runtime class, image pull secrets, resources of the container `sandbox`.
    Nothing else of a pod can be set."""

    @model_validator(mode="after")
    def _bundles_have_paths_of_their_own(self) -> Self:
        if both := sorted(self.bundles.keys() & self.bundle_claims.keys()):
            raise ValueError(f"{both[0]} is in both bundles and bundleClaims")
        return self


class KodoSandbox(Model):
    """Containers started by kodo, for teams that use it; less isolated than `pod`."""

    backend: Literal["kubernetes", "docker"] = "kubernetes"
    """Where kodo starts them."""
    namespace: ShortText = "default"
    """The pods' namespace, in the cluster of the kubeconfig's current context."""
    kubeconfig: LocalPath | None = None
    """A kubeconfig file; by default `KUBECONFIG`, or the cluster this runs in."""
    resources: Resources = Resources()
    """Resources of a container."""
    node_selector: NodeLabels = Field(default_factory=dict)
    """Labels of nodes that may run the pods."""
    path: str | None = None
    """`PATH` for commands, because kodo replaces the image's own; by default kodo's."""
    start_seconds: Seconds = 300.0
    """Time limit from creation to a running pod."""


class SandboxSpec(OneOf):
    """Where agents work and patches are graded. Set exactly one of `local`, `pod`, `kodo` and
    `backend`.
    """

    local: LocalSandbox | None = variant()
    """Namespaces on this machine."""
    pod: PodSandbox | None = variant()
    """Kubernetes pods."""
    kodo: KodoSandbox | None = variant()
    """Containers of kodo."""
    backend: Use | None = added_variant()
    """A back end of your own."""
