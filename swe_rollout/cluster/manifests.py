"""What we write to Kubernetes: manifests as typed values, plain JSON at the border.

Fields without a default are always sent; the others only where they differ from it. Which values
a sandbox gets is decided in `swe_rollout.sandbox.pods.pod_spec`.
"""

from __future__ import annotations

import msgspec


class _Manifest(msgspec.Struct, rename="camel", frozen=True, kw_only=True, omit_defaults=True):
    """The base: camelCase outside, what equals its default left out."""


class OwnerReference(_Manifest, frozen=True):
    """The object without which another one is not needed: it is deleted with it."""

    api_version: str
    kind: str
    name: str
    uid: str


class Named(_Manifest, frozen=True):
    """Name and marks of an object."""

    name: str
    labels: dict[str, str]
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()


class SeccompProfile(_Manifest, frozen=True):
    """Which system calls pass."""

    type: str


class PodSecurity(_Manifest, frozen=True):
    """What holds for all containers of a pod."""

    seccomp_profile: SeccompProfile
    run_as_non_root: bool = False
    run_as_user: int | None = None


class Capabilities(_Manifest, frozen=True):
    """Powers of root, taken away and given back."""

    drop: tuple[str, ...]
    add: tuple[str, ...] = ()


class ContainerSecurity(_Manifest, frozen=True):
    """What holds for one container."""

    allow_privilege_escalation: bool
    capabilities: Capabilities


class ResourceNeeds(_Manifest, frozen=True):
    """What is reserved, and what can't be exceeded; by resource name."""

    requests: dict[str, str]
    limits: dict[str, str]


class Container(_Manifest, frozen=True):
    """One container."""

    name: str
    image: str
    image_pull_policy: str
    command: tuple[str, ...]
    resources: ResourceNeeds
    security_context: ContainerSecurity


class Toleration(_Manifest, frozen=True):
    """How long a pod stays on a node that has a taint."""

    key: str
    operator: str
    effect: str
    toleration_seconds: int


class DnsConfig(_Manifest, frozen=True):
    """Resolvers, in place of the cluster's."""

    nameservers: tuple[str, ...]


class PodBody(_Manifest, frozen=True):
    """The spec of a pod."""

    automount_service_account_token: bool
    enable_service_links: bool
    restart_policy: str
    termination_grace_period_seconds: int
    active_deadline_seconds: int
    dns_policy: str
    dns_config: DnsConfig
    tolerations: tuple[Toleration, ...]
    security_context: PodSecurity
    containers: tuple[Container, ...]
    runtime_class_name: str | None = None


class PodManifest(_Manifest, frozen=True):
    """A pod to create."""

    metadata: Named
    spec: PodBody


class TemplatedPod(_Manifest, frozen=True):
    """A pod to create, with what a job's own template adds: fields that nothing here knows."""

    metadata: Named
    spec: dict[str, object]


class Requirement(_Manifest, frozen=True):
    """One clause of a label selector."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(_Manifest, frozen=True):
    """Which objects are meant."""

    match_expressions: tuple[Requirement, ...]


class PolicyBody(_Manifest, frozen=True):
    """The spec of a NetworkPolicy that lets nothing through: types named, no rules."""

    pod_selector: LabelSelector
    policy_types: tuple[str, ...]


class NetworkPolicyManifest(_Manifest, frozen=True):
    """A NetworkPolicy to create."""

    metadata: Named
    spec: PolicyBody


class Preconditions(_Manifest, frozen=True):
    """Which incarnation of a name is meant."""

    uid: str


class DeleteOptions(_Manifest, frozen=True):
    """How to delete: this gently, and where one object is meant, which one."""

    grace_period_seconds: int
    preconditions: Preconditions | None = None


class Marks(_Manifest, frozen=True):
    """Annotations to set; the others stay."""

    annotations: dict[str, str]


class MarksPatch(_Manifest, frozen=True):
    """A merge patch of an object's annotations."""

    metadata: Marks


class ResourceAttributes(_Manifest, frozen=True):
    """A request somebody might make."""

    verb: str
    resource: str
    namespace: str
    group: str = ""
    subresource: str = ""


class AccessQuestion(_Manifest, frozen=True):
    """What is asked of a SelfSubjectAccessReview."""

    resource_attributes: ResourceAttributes


class AccessReviewManifest(_Manifest, frozen=True):
    """Asks whether we may."""

    spec: AccessQuestion


class Operation(_Manifest, frozen=True):
    """One step of a JSON patch; all of them are done, or none."""

    op: str
    """`test`, `add`, `replace` or `remove`."""
    path: str
    value: str | int | None = None


class MatchLabels(_Manifest, frozen=True):
    """Which pods are its own."""

    match_labels: dict[str, str]


class DaemonSetBody(_Manifest, frozen=True):
    """A pod for every node."""

    selector: MatchLabels
    template: TemplatedPod


class DaemonSetManifest(_Manifest, frozen=True):
    """A DaemonSet to create."""

    metadata: Named
    spec: DaemonSetBody
