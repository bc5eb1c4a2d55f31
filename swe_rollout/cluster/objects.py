"""What we read of Kubernetes objects: the fields that are used, decoded by msgspec.

What we write is in `manifests`.
"""

from __future__ import annotations

import msgspec


class _Object(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The base: camelCase outside, unknown fields skipped."""


class Metadata(_Object, frozen=True):
    """Who an object is."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    deletion_timestamp: str | None = None
    """Set while the object is being deleted."""


class Waiting(_Object, frozen=True):
    """Why a container has not started."""

    reason: str = ""
    message: str = ""


class Running(_Object, frozen=True):
    """A container that runs."""

    started_at: str | None = None


class Terminated(_Object, frozen=True):
    """How a container ended."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""


class ContainerState(_Object, frozen=True):
    """One of the three is set; none of them: waiting without a word."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(_Object, frozen=True):
    """A container as the kubelet reports it."""

    name: str = ""
    image_id: str = msgspec.field(default="", name="imageID")
    """Set once the node has the image."""
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    """How it ended before it was started again."""


class Condition(_Object, frozen=True):
    """One statement about an object."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


class PodStatus(_Object, frozen=True):
    """How a pod is."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: list[Condition] = []
    container_statuses: list[ContainerStatus] = []
    host_ip: str = msgspec.field(default="", name="hostIP")
    pod_ip: str = msgspec.field(default="", name="podIP")

    def condition(self, kind: str) -> Condition | None:
        """The condition of that type, if the pod has it."""
        return next((c for c in self.conditions if c.type == kind), None)


class PodPlacement(_Object, frozen=True):
    """Where a pod was put."""

    node_name: str = ""


class Pod(_Object, frozen=True):
    """A pod."""

    metadata: Metadata
    spec: PodPlacement = PodPlacement()
    status: PodStatus = PodStatus()

    @property
    def container(self) -> ContainerStatus | None:
        """Its first container: sandboxes have one."""
        return self.status.container_statuses[0] if self.status.container_statuses else None


class PodList(_Object, frozen=True):
    """Pods, and where a watch goes on from."""

    metadata: Metadata = Metadata()
    items: list[Pod] | None = None


class DaemonSetStatus(_Object, frozen=True):
    """On how many nodes its pods should be."""

    observed_generation: int = 0
    desired_number_scheduled: int = 0


class DaemonSet(_Object, frozen=True):
    """A pod on every node that takes it."""

    metadata: Metadata
    status: DaemonSetStatus = DaemonSetStatus()


class Event(_Object, frozen=True):
    """What a component says about an object."""

    type: str = ""
    reason: str = ""
    message: str = ""
    last_timestamp: str | None = None


class EventList(_Object, frozen=True):
    """Events of an object."""

    items: list[Event] | None = None


class Cause(_Object, frozen=True):
    """One detail of a Status."""

    reason: str = ""
    message: str = ""


class StatusDetails(_Object, frozen=True):
    """What a Status says beyond its message."""

    causes: list[Cause] | None = None
    retry_after_seconds: int = 0


class Status(_Object, frozen=True):
    """The answer to a failed request, and the last word of an exec stream."""

    status: str = ""
    reason: str = ""
    message: str = ""
    code: int = 0
    details: StatusDetails | None = None


class Version(_Object, frozen=True):
    """What the API server is."""

    git_version: str


class Namespace(_Object, frozen=True):
    """A namespace; its labels carry the Pod Security levels."""

    metadata: Metadata


class AccessVerdict(_Object, frozen=True):
    """Whether a request would be allowed."""

    allowed: bool = False
    reason: str = ""


class AccessReview(_Object, frozen=True):
    """The answer to a SelfSubjectAccessReview."""

    status: AccessVerdict = AccessVerdict()


class PolicyRules(_Object, frozen=True):
    """What a NetworkPolicy lets through: nothing, when both lists are empty."""

    policy_types: list[str] = []
    ingress: list[msgspec.Raw] = []
    egress: list[msgspec.Raw] = []

    @property
    def denies_all(self) -> bool:
        """Whether the pods it selects reach nothing and are reached by nothing."""
        both = {"Ingress", "Egress"} <= set(self.policy_types)
        return both and not self.ingress and not self.egress


class NetworkPolicy(_Object, frozen=True):
    """A NetworkPolicy."""

    metadata: Metadata
    spec: PolicyRules = PolicyRules()
