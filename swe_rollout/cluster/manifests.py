"""Manifests that are written to Kubernetes, as typed values; plain JSON at the border.

Fields without a default are always sent, the others only where they differ from it. The values of
a sandbox's pod are chosen in `swe_rollout.sandbox.pods.pod_spec`.
"""

from __future__ import annotations

import msgspec


class _Manifest(msgspec.Struct, rename="camel", frozen=True, kw_only=True, omit_defaults=True):
    """The base: camelCase in JSON, fields that equal their default omitted."""


class OwnerReference(_Manifest, frozen=True):
    """The owner of an object, which Kubernetes deletes together with its owner."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    """Whether it alone manages the object; one without a controller may be adopted by others."""


class ObjectMeta(_Manifest, frozen=True):
    name: str
    labels: dict[str, str]
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()


class SeccompProfile(_Manifest, frozen=True):
    type: str


class PodSecurityContext(_Manifest, frozen=True):
    seccomp_profile: SeccompProfile
    run_as_non_root: bool = False
    run_as_user: int | None = None


class Capabilities(_Manifest, frozen=True):
    """Dropped first, then added."""

    drop: tuple[str, ...]
    add: tuple[str, ...] = ()


class ContainerSecurityContext(_Manifest, frozen=True):
    allow_privilege_escalation: bool
    capabilities: Capabilities


class ResourceRequirements(_Manifest, frozen=True):
    """Reserved resources and their upper limits, by resource name."""

    requests: dict[str, str]
    limits: dict[str, str]


class Container(_Manifest, frozen=True):
    name: str
    image: str
    image_pull_policy: str
    command: tuple[str, ...]
    resources: ResourceRequirements
    security_context: ContainerSecurityContext


class Toleration(_Manifest, frozen=True):
    """How long a pod stays on a node that has a taint."""

    key: str
    operator: str
    effect: str
    toleration_seconds: int


class DnsConfig(_Manifest, frozen=True):
    """Name servers used instead of the cluster's."""

    nameservers: tuple[str, ...]


class PodSpec(_Manifest, frozen=True):
    automount_service_account_token: bool
    enable_service_links: bool
    restart_policy: str
    termination_grace_period_seconds: int
    active_deadline_seconds: int
    dns_policy: str
    tolerations: tuple[Toleration, ...]
    security_context: PodSecurityContext
    containers: tuple[Container, ...]
    dns_config: DnsConfig | None = None
    runtime_class_name: str | None = None


class PodManifest(_Manifest, frozen=True):
    metadata: ObjectMeta
    spec: PodSpec


class TemplatedPod(_Manifest, frozen=True):
    """A pod to create with fields of the job's own template, which are not modelled here."""

    metadata: ObjectMeta
    spec: dict[str, object]


class LabelSelectorRequirement(_Manifest, frozen=True):
    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(_Manifest, frozen=True):
    match_expressions: tuple[LabelSelectorRequirement, ...]


class NetworkPolicySpec(_Manifest, frozen=True):
    """The spec of a NetworkPolicy that denies all traffic: policy types without rules."""

    pod_selector: LabelSelector
    policy_types: tuple[str, ...]


class NetworkPolicyManifest(_Manifest, frozen=True):
    metadata: ObjectMeta
    spec: NetworkPolicySpec


class ResourceAttributes(_Manifest, frozen=True):
    """A request whose authorisation is checked."""

    verb: str
    resource: str
    namespace: str
    group: str = ""
    subresource: str = ""


class JsonPatchOperation(_Manifest, frozen=True):
    """One step of a JSON patch; all steps are applied, or none."""

    op: str
    """`test`, `add`, `replace` or `remove`."""
    path: str
    value: str | int | None = None


class MatchLabels(_Manifest, frozen=True):
    """A selector of the DaemonSet's own pods by their labels."""

    match_labels: dict[str, str]


class DaemonSetSpec(_Manifest, frozen=True):
    """The pod that runs on every node."""

    selector: MatchLabels
    template: TemplatedPod


class DaemonSetManifest(_Manifest, frozen=True):
    metadata: ObjectMeta
    spec: DaemonSetSpec
