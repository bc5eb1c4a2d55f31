"""The part of a sandbox pod that a job may choose, such as scheduling and labels.

The template is an allow-list. `sandbox/pods/pod_spec.py` fixes everything else, so that permission
to create jobs does not grant a node's files, a Secret or weaker isolation. The cluster repeats the
check for the job (manifests/admission/jobs.yaml) and for every pod that a worker creates
(manifests/admission/workers.yaml), because a job may have its own worker image.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, get_args

from pydantic import AfterValidator, BaseModel, Field, StringConstraints

from swe_rollout.spec.bounds import MAX_AMOUNTS, check_amount
from swe_rollout.spec.model import Model

TEMPLATE_PATH: Final = ("spec", "sandbox", "pod", "template")
KUEUE: Final = "kueue.x-k8s.io/"
ANNOTATIONS: Final = (
    "cluster-autoscaler.kubernetes.io/safe-to-evict",
    "karpenter.sh/do-not-disrupt",
)
"""Prefixed annotations that only delay a node's removal. Other programs' annotations may choose a
pod's profile, devices, networks or injected containers."""
_PLAIN_KEY: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_]{0,61}[A-Za-z0-9])?")
"""Matches people's own keys. Those of programs have prefixes, those of runtimes dots."""
_SYSTEM_TAINT: Final = re.compile(r"^([^/]*\.)?(kubernetes|k8s)\.io/")
_LABEL_VALUE: Final = r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"
_CLOUD_KEY: Final = re.compile(r"[a-z0-9][-a-z0-9.]*/[A-Za-z0-9][-A-Za-z0-9_.]*")
_MAX_ENTRIES: Final = 32


def _own_key(key: str) -> str:
    if not (_PLAIN_KEY.fullmatch(key) or key.startswith(KUEUE)):
        raise ValueError(f"a name without dots and `/`, such as `team`, or one of {KUEUE}")
    return key


def _annotation_key(key: str) -> str:
    return key if key in ANNOTATIONS else _own_key(key)


def _identity_key(key: str) -> str:
    if not _CLOUD_KEY.fullmatch(key):
        raise ValueError("a name with the cloud's prefix, such as `eks.amazonaws.com/role-arn`")
    return key


def _taint_key(key: str) -> str:
    if _SYSTEM_TAINT.match(key):
        raise ValueError("the key of a taint of your own: Kubernetes' own keep pods off bad nodes")
    return key


def _amounts(amounts: dict[str, str]) -> dict[str, str]:
    for resource, amount in amounts.items():
        if resource not in MAX_AMOUNTS:
            raise ValueError(f"amounts of {', '.join(MAX_AMOUNTS)}; found {resource}")
        check_amount(resource, amount)
    return amounts


_Key = Annotated[str, StringConstraints(min_length=1, max_length=317)]
LabelValue = Annotated[str, StringConstraints(max_length=63, pattern=_LABEL_VALUE)]
Labels = Annotated[
    dict[Annotated[_Key, AfterValidator(_own_key)], LabelValue], Field(max_length=_MAX_ENTRIES)
]
NodeLabels = Annotated[dict[_Key, LabelValue], Field(max_length=_MAX_ENTRIES)]
IdentityAnnotations = Annotated[
    dict[
        Annotated[_Key, AfterValidator(_identity_key)],
        Annotated[str, StringConstraints(max_length=1024, pattern=r"^[-A-Za-z0-9:/@._+=,]*$")],
    ],
    Field(max_length=8),
]
_Annotations = Annotated[
    dict[
        Annotated[_Key, AfterValidator(_annotation_key)],
        Annotated[str, StringConstraints(max_length=1024)],
    ],
    Field(max_length=_MAX_ENTRIES),
]
_Amounts = Annotated[
    dict[str, Annotated[str, StringConstraints(max_length=32)]],
    Field(max_length=len(MAX_AMOUNTS)),
    AfterValidator(_amounts),
]
_ObjectName = Annotated[
    str, StringConstraints(max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
]


class TemplateMetadata(Model):
    """Labels and annotations for people and queues; other programs' are refused."""

    labels: Labels = Field(default_factory=dict)
    """Labels: names without dots and `/`, such as `team`, and Kueue's."""
    annotations: _Annotations = Field(default_factory=dict)
    """Annotations: names without dots and `/`, Kueue's, and those that prevent a scale-down."""


class Toleration(Model):
    """A taint of your own nodes that pods tolerate."""

    key: Annotated[_Key, AfterValidator(_taint_key)]
    """The taint's key, which must not be one of Kubernetes' own."""
    operator: Literal["Equal", "Exists"] = "Equal"
    """Whether the value matters (`Equal`) or not (`Exists`)."""
    value: LabelValue | None = None
    """The taint's value."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """The taint's effect; all effects by default."""
    toleration_seconds: Annotated[int, Field(ge=0, le=86400)] | None = None
    """How long a running pod stays on a node with the taint, for `NoExecute`."""


class NodeRequirement(Model):
    """A condition on a node label."""

    key: _Key
    """The label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    """How the label's value is compared with `values`."""
    values: Annotated[tuple[LabelValue, ...], Field(max_length=64)] = ()
    """The values."""


class NodeTerm(Model):
    """Conditions that a node must all meet."""

    match_expressions: Annotated[tuple[NodeRequirement, ...], Field(min_length=1, max_length=16)]
    """The conditions."""


class NodeTerms(Model):
    """Alternatives, of which a node must meet at least one."""

    node_selector_terms: Annotated[tuple[NodeTerm, ...], Field(min_length=1, max_length=16)]
    """The alternatives."""


class PreferredNodes(Model):
    """Nodes to prefer over others."""

    weight: Annotated[int, Field(ge=1, le=100)]
    """The weight of the preference."""
    preference: NodeTerm
    """The conditions that preferred nodes meet."""


class NodeAffinity(Model):
    """Selection of nodes by conditions on their labels."""

    required_during_scheduling_ignored_during_execution: NodeTerms | None = None
    """Nodes that may run sandboxes."""
    preferred_during_scheduling_ignored_during_execution: Annotated[
        tuple[PreferredNodes, ...], Field(max_length=16)
    ] = ()
    """Nodes to prefer."""


class Affinity(Model):
    """Node selection beyond `nodeSelector`. Pod affinity could keep other users' pods away."""

    node_affinity: NodeAffinity
    """Conditions on nodes."""


class PullSecret(Model):
    """A Secret with a registry's credentials, marked for rollouts."""

    name: _ObjectName
    """The Secret's name."""


class TemplateResources(Model):
    """Requests and limits; each amount replaces the one of `spec.sandbox.pod.resources`."""

    requests: _Amounts = Field(default_factory=dict)
    """`cpu`, `memory` and `ephemeral-storage`."""
    limits: _Amounts = Field(default_factory=dict)
    """`cpu`, `memory` and `ephemeral-storage`."""


class TemplateContainer(Model):
    """The sandbox's container."""

    name: Literal["sandbox"]
    """`sandbox`: the only one that a job describes."""
    resources: TemplateResources = TemplateResources()
    """Its resources; its limits hold for its grader's container, too."""


class TemplateSpec(Model):
    """Fields of the pod."""

    node_selector: NodeLabels = Field(default_factory=dict)
    """Labels of the nodes that may run sandboxes."""
    affinity: Affinity | None = None
    """Node affinity."""
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=16)] = ()
    """Tolerations in addition to those that every sandbox has."""
    runtime_class_name: _ObjectName | None = None
    """Replaces `spec.sandbox.pod.runtimeClass`."""
    image_pull_secrets: Annotated[tuple[PullSecret, ...], Field(max_length=8)] = ()
    """Secrets in the namespace, marked for rollouts, with registry credentials."""
    host_users: Literal[False] | None = None
    """If false, root in the sandbox is an unprivileged user on its node."""
    containers: Annotated[tuple[TemplateContainer, ...], Field(max_length=1)] = ()
    """The container `sandbox`, for its resources."""


class PodTemplate(Model):
    """What a job adds to the pods of its sandboxes. Nothing else of a pod can be set."""

    metadata: TemplateMetadata = TemplateMetadata()
    """Labels and annotations."""
    spec: TemplateSpec = TemplateSpec()
    """Node selection, runtime class, pull secrets and resources."""


def template_fields(path: tuple[str, ...]) -> tuple[str, ...]:
    """Return the fields allowed at a path inside the template; empty for other paths."""
    if path[: len(TEMPLATE_PATH)] != TEMPLATE_PATH:
        return ()
    model: type[BaseModel] | None = PodTemplate
    for name in path[len(TEMPLATE_PATH) :]:
        fields = {} if model is None else model.model_fields
        model = next((_model(i.annotation) for i in fields.values() if i.alias == name), None)
    return () if model is None else tuple(str(i.alias) for i in model.model_fields.values())


def _model(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model, get_args(annotation))), None)
