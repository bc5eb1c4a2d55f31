"""Kubernetes objects as read from the API, and their kinds, by which `client` addresses them.

A struct has only the fields in use. Objects to write are plain JSON, as the API documents them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypeVar
from urllib.parse import quote, urlencode

import msgspec

T = TypeVar("T")
U = TypeVar("U")
Query: TypeAlias = Mapping[str, str] | Sequence[tuple[str, str]]
Json: TypeAlias = dict[str, Any]
"""An object to write. Its fields are the API's own, and the API server checks them."""


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A kind of object: where the API serves it, and how to decode one."""

    root: str
    """Path of the API group and version: `/api/v1`, `/apis/GROUP/VERSION`."""
    plural: str
    noun: str
    """The name of the kind in messages."""
    decode: Callable[[bytes], T]
    """Decode an object from JSON; raises one of `api_error.UNDECODABLE`, or a ClusterError."""

    @property
    def heads(self) -> Kind[Head]:
        """Return the same kind with only the metadata decoded."""
        return self.decoded_by(msgspec.json.Decoder(Head).decode)

    def decoded_by(self, decode: Callable[[bytes], U]) -> Kind[U]:
        """Return the same kind with another decoder for its objects."""
        return Kind(self.root, self.plural, self.noun, decode)

    def path(self, namespace: str = "", name: str = "", query: Query = ()) -> str:
        """Return the path of one object, or of all in a namespace or in the cluster."""
        scope = f"/namespaces/{quote(namespace)}" if namespace else ""
        path = f"{self.root}{scope}/{self.plural}" + (f"/{quote(name)}" if name else "")
        return f"{path}?{urlencode(query, quote_via=quote)}" if query else path


class Decoded(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The base class: camelCase in JSON; unknown fields are ignored."""


class Metadata(Decoded, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    """Set while the object is being deleted."""
    finalizers: list[str] = []
    """The parties that must agree before the object is deleted."""


class OwnerReference(Decoded, frozen=True):
    """The owner of an object, which Kubernetes deletes together with its owner."""

    api_version: str
    kind: str
    name: str
    uid: str


class Head(Decoded, frozen=True):
    """Any object, with only its metadata decoded."""

    metadata: Metadata = Metadata()


class Waiting(Decoded, frozen=True):
    """Why a container has not started."""

    reason: str = ""
    message: str = ""


class Running(Decoded, frozen=True):
    """The state of a running container."""

    started_at: str | None = None


class Terminated(Decoded, frozen=True):
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    finished_at: str | None = None
    """RFC 3339; None if the kubelet lost track of the container, as after an eviction."""


class ContainerState(Decoded, frozen=True):
    """One of three states; if none is set, the container waits for an unknown reason."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(Decoded, frozen=True):
    """A container as the kubelet reports it."""

    name: str = ""
    image_id: str = msgspec.field(default="", name="imageID")
    """Set once the node has the image."""
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    """How the container ended before it was last restarted."""


class KubernetesCondition(Decoded, frozen=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""


class PodStatus(Decoded, frozen=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: list[KubernetesCondition] = []
    container_statuses: list[ContainerStatus] = []

    def condition(self, kind: str) -> KubernetesCondition | None:
        """Return the condition of that type, if the pod has it."""
        return next((c for c in self.conditions if c.type == kind), None)


class PodPlacement(Decoded, frozen=True):
    """The node to which a pod was scheduled."""

    node_name: str = ""


class Pod(Decoded, frozen=True):
    metadata: Metadata
    spec: PodPlacement = PodPlacement()
    status: PodStatus = PodStatus()

    @property
    def container(self) -> ContainerStatus | None:
        """The status of the first container, for pods that have only one."""
        return self.status.container_statuses[0] if self.status.container_statuses else None

    def container_of(self, name: str) -> ContainerStatus | None:
        """Return the status of the container of that name, once the kubelet has reported it."""
        return next((each for each in self.status.container_statuses if each.name == name), None)


class DaemonSetStatus(Decoded, frozen=True):
    """The number of nodes on which a DaemonSet's pods should run."""

    observed_generation: int = 0
    desired_number_scheduled: int = 0


class DaemonSet(Decoded, frozen=True):
    metadata: Metadata
    status: DaemonSetStatus = DaemonSetStatus()


class InvolvedObject(Decoded, frozen=True):
    kind: str = ""
    name: str = ""


class KubernetesEvent(Decoded, frozen=True):
    """An event that a component reported about an object."""

    type: str = ""
    """`Normal` or `Warning`."""
    reason: str = ""
    message: str = ""
    count: int | None = None
    involved_object: InvolvedObject = InvolvedObject()
    last_timestamp: str | None = None
    event_time: str | None = None
    metadata: Metadata = Metadata()

    @property
    def time(self) -> str:
        """When the event was last reported, as RFC 3339 to the second."""
        reported = self.last_timestamp or self.event_time or self.metadata.creation_timestamp
        return (reported or "").partition(".")[0].removesuffix("Z")

    @property
    def about(self) -> str:
        """The object the event is about: `rolloutjob/demo`."""
        return f"{self.involved_object.kind.lower()}/{self.involved_object.name}"


class StatusCause(Decoded, frozen=True):
    reason: str = ""
    message: str = ""


class StatusDetails(Decoded, frozen=True):
    """The causes that a Status lists in addition to its message."""

    causes: list[StatusCause] | None = None


class ListMetadata(Decoded, frozen=True):
    """The metadata of a list, or of the refusal to continue one."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")
    """Where the next page begins; empty on the last one."""


class Status(Decoded, frozen=True):
    """The response to a failed request, and the last message of an exec stream."""

    metadata: ListMetadata = ListMetadata()
    status: str = ""
    reason: str = ""
    message: str = ""
    code: int = 0
    details: StatusDetails | None = None


class Version(Decoded, frozen=True):
    git_version: str


class NetworkPolicyRules(Decoded, frozen=True):
    """The traffic that a NetworkPolicy allows: none, when both lists are empty."""

    policy_types: list[str] = []
    ingress: list[msgspec.Raw] = []
    egress: list[msgspec.Raw] = []

    @property
    def denies_all(self) -> bool:
        """Whether the selected pods can neither send nor receive traffic."""
        both = {"Ingress", "Egress"} <= set(self.policy_types)
        return both and not self.ingress and not self.egress


class NetworkPolicy(Decoded, frozen=True):
    metadata: Metadata
    spec: NetworkPolicyRules = NetworkPolicyRules()


PODS: Final = Kind("/api/v1", "pods", "pod", msgspec.json.Decoder(Pod).decode)
EVENTS: Final = Kind("/api/v1", "events", "event", msgspec.json.Decoder(KubernetesEvent).decode)
NAMESPACES: Final = Kind("/api/v1", "namespaces", "namespace", msgspec.json.Decoder(Head).decode)
NETWORK_POLICIES: Final = Kind(
    "/apis/networking.k8s.io/v1",
    "networkpolicies",
    "NetworkPolicy",
    msgspec.json.Decoder(NetworkPolicy).decode,
)
DAEMON_SETS: Final = Kind(
    "/apis/apps/v1", "daemonsets", "DaemonSet", msgspec.json.Decoder(DaemonSet).decode
)
ACCESS_REVIEWS: Final[Kind[Json]] = Kind(
    "/apis/authorization.k8s.io/v1",
    "selfsubjectaccessreviews",
    "review of our own access",
    msgspec.json.Decoder(Json).decode,
)
IDENTITIES: Final[Kind[Json]] = Kind(
    "/apis/authentication.k8s.io/v1",
    "selfsubjectreviews",
    "review of who we are",
    msgspec.json.Decoder(Json).decode,
)
