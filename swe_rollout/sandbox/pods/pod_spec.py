"""The manifest of a sandbox pod: a pure function of the request, hardened by default.

No service-account token, no DNS, no privileges beyond what root in a task's image needs, memory
reserved in full, and a deadline. Of the episode it holds only names: environment and files travel
over the session. A job's own template (`swe_rollout.spec.pod_template`) has few fields: it adds
labels, annotations and tolerations, replaces amounts of resources, and removes nothing.
"""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass
from typing import Final

import msgspec

from swe_rollout.cluster.objects import Json, OwnerReference, Pod
from swe_rollout.sandbox.base import Role, SandboxRequest
from swe_rollout.sandbox.session.bootstrap import idle_command
from swe_rollout.spec.pod_template import PodTemplate
from swe_rollout.spec.sandbox import PodSandbox, Resources

CONTAINER: Final = "sandbox"
GRADER_CONTAINER: Final = "sandbox-grader"
"""Idles beside an agent's container; the grader uses it once the agent's has ended."""
PREFIX: Final = "swe-rollout.dev"
RUN_LABEL: Final = f"{PREFIX}/run"
ROLE_LABEL: Final = f"{PREFIX}/role"
JOB_LABEL: Final = f"{PREFIX}/job"
JOB_UID_LABEL: Final = f"{PREFIX}/job-uid"
"""Set only on the sandboxes of a RolloutJob on the cluster."""
EPISODE_LABEL: Final = f"{PREFIX}/episode"
NETWORK_LABEL: Final = f"{PREFIX}/network"
"""Lets an administrator's NetworkPolicy select the pods that are given a network."""
EPISODE_ANNOTATION: Final = f"{PREFIX}/address"
"""The annotation with the episode's full address."""
MANAGED_BY: Final = {"app.kubernetes.io/managed-by": "swe-rollout"}

ROOT_CAPABILITIES: Final = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID")
"""The capabilities that package managers and test suites need in images that run as root."""
_LOST_NODE_S: Final = 30
"""How long a pod stays on a node that does not respond."""
_NAME_LENGTH: Final = 63
_IDLE: Final = {"cpu": "1m", "memory": "4Mi", "ephemeral-storage": "1Mi"}
"""What a container that idles needs. The agent's, once ended, leaves its share to the grader's."""
_MERGED: Final = ("containers", "tolerations")
"""Fields to which the template's entries are added; the defaults stay."""


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """The process that owns the sandboxes."""

    run: str
    """A random label value for each process."""
    started: str
    """When it started, for humans."""
    job: OwnerReference | None = None
    """The RolloutJob on the cluster that the run belongs to; None for a run outside a cluster."""


def pod_manifest(request: SandboxRequest, sandbox: PodSandbox, owner: RunIdentity) -> Json:
    """Build the pod for one sandbox, before the job's template is merged."""
    networked = is_networked(request, sandbox)
    metadata: Json = {
        "name": pod_name(request, owner),
        "labels": {
            **job_labels(request.episode.job, owner),
            **episode_labels(request),
            **network_labels(request, sandbox),
        },
        "annotations": {
            EPISODE_ANNOTATION: str(request.episode),
            f"{PREFIX}/owner": f"{owner.run} {owner.started}",
        },
    }
    if owner.job is not None:
        # As its controller, so that no ReplicaSet adopts the pod for its labels.
        metadata["ownerReferences"] = [{**msgspec.to_builtins(owner.job), "controller": True}]
    spec: Json = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "activeDeadlineSeconds": math.ceil(lifetime_s(request)),
        "dnsPolicy": "ClusterFirst" if networked else "None",
        "tolerations": [_patience(taint) for taint in ("not-ready", "unreachable")],
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [_container(request.image, sandbox)],
    }
    if not networked:
        spec["dnsConfig"] = {"nameservers": ["127.0.0.1"]}
    if sandbox.run_as_user is not None:
        spec["securityContext"] |= {"runAsNonRoot": True, "runAsUser": sandbox.run_as_user}
    if sandbox.runtime_class is not None:
        spec["runtimeClassName"] = sandbox.runtime_class
    if (sandbox.bundles or sandbox.bundle_claims) and request.role is Role.AGENT:
        spec |= _with_bundles(spec["containers"][0], sandbox)
    if request.grading_s:
        spec["containers"].append(_grader_container(_container(request.image, sandbox)))
    return {"metadata": metadata, "spec": spec}


def lifetime_s(request: SandboxRequest) -> float:
    """Return how long the pod of a request may live, with its grader's container."""
    return request.deadline_s + request.grading_s


def with_template(manifest: Json, template: PodTemplate | None) -> Json:
    """Merge the template into the pod."""
    if template is None:
        return manifest
    metadata, own = manifest["metadata"], manifest["spec"]
    wanted = template.spec.model_dump(
        mode="json", by_alias=True, exclude_none=True, exclude_defaults=True, exclude={*_MERGED}
    )
    tolerations = [
        each.model_dump(mode="json", by_alias=True, exclude_none=True)
        for each in template.spec.tolerations
    ]
    first, *graders = own["containers"]
    for each in template.spec.containers:
        resources = {
            "requests": {**first["resources"]["requests"], **each.resources.requests},
            "limits": {**first["resources"]["limits"], **each.resources.limits},
        }
        first = {**first, "resources": resources}
        graders = [_grader_container({**grader, "resources": resources}) for grader in graders]
    return {
        "metadata": {
            **metadata,
            # Our own labels and annotations last: the template can't override them.
            "labels": {**template.metadata.labels, **metadata["labels"]},
            "annotations": {**template.metadata.annotations, **metadata["annotations"]},
        },
        "spec": {
            **own,
            **wanted,
            "containers": [first, *graders],
            "tolerations": [*own["tolerations"], *tolerations],
        },
    }


def pod_name(request: SandboxRequest, owner: RunIdentity) -> str:
    """Build the sandbox's unique name: a DNS label, the same in every process of a job."""
    episode = request.episode
    role = f"{request.role.value[0]}{request.part or ''}"
    tail = f"{episode.sample}-{request.attempt}-{role}-{episode.digest}"
    tail += name_suffix(owner)
    room = _NAME_LENGTH - len(tail) - 2
    job = _slug(episode.job, max(room // 3, room - len(episode.instance)))
    return f"{job}-{_slug(episode.instance, room - len(job))}-{tail}"


def name_suffix(owner: RunIdentity) -> str:
    """Build the suffix of the names of a RolloutJob's sandboxes, which limits where it may exec."""
    return "" if owner.job is None else f"-{owner.job.uid[:8]}"


def job_labels(job: str, owner: RunIdentity) -> dict[str, str]:
    """Build the labels of every sandbox pod of a run."""
    labels = {**MANAGED_BY, JOB_LABEL: label_value(job), RUN_LABEL: owner.run}
    return labels if owner.job is None else {**labels, JOB_UID_LABEL: owner.job.uid}


def episode_labels(request: SandboxRequest) -> dict[str, str]:
    """Build the labels that name the episode, the attempt and the role."""
    episode = request.episode
    return {
        f"{PREFIX}/instance": label_value(episode.instance),
        f"{PREFIX}/sample": str(episode.sample),
        f"{PREFIX}/attempt": str(request.attempt),
        EPISODE_LABEL: episode.digest,
        ROLE_LABEL: request.role.value,
    }


def is_networked(request: SandboxRequest, sandbox: PodSandbox) -> bool:
    """Whether the task asks for a network and the job allows networks."""
    return request.wants_network and sandbox.network == "requested"


def network_labels(request: SandboxRequest, sandbox: PodSandbox) -> dict[str, str]:
    """Build the label that says whether the pod is given a network."""
    return {NETWORK_LABEL: "requested" if is_networked(request, sandbox) else "none"}


def label_value(text: str) -> str:
    """Return `text` if it is a valid label value, else a readable part of it and a digest."""
    if re.fullmatch(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", text):
        return text
    part = re.sub(r"[^-A-Za-z0-9_.]+", "-", text)[:50].strip("-_.")
    return f"{part}-{_digest(text)}".lstrip("-")


def take_patch(pod: Pod, owner: RunIdentity) -> tuple[Json, ...]:
    """Build the patch that moves a pod of an earlier run to this one, unless another run did."""
    path = label_path(RUN_LABEL)
    return (
        {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid},
        {"op": "test", "path": path, "value": pod.metadata.labels[RUN_LABEL]},
        {"op": "replace", "path": path, "value": owner.run},
    )


def label_path(name: str, *, kind: str = "labels") -> str:
    """Return the JSON pointer of a label, or of another `kind` of named metadata."""
    return f"/metadata/{kind}/{name.replace('~', '~0').replace('/', '~1')}"


def _patience(taint: str) -> Json:
    """Tolerate an unresponsive node, but not for long."""
    return {
        "key": f"node.kubernetes.io/{taint}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": _LOST_NODE_S,
    }


def _container(image: str, sandbox: PodSandbox) -> Json:
    capabilities: Json = {"drop": ["ALL"]}
    if sandbox.run_as_user is None:
        capabilities["add"] = [*ROOT_CAPABILITIES]
    return {
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": sandbox.image_pull_policy,
        "command": idle_command(),
        "resources": reserved(sandbox.resources),
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": capabilities},
    }


def _grader_container(like: Json) -> Json:
    """Build the grader's container beside an agent's, which has ended before it is used."""
    resources = {"requests": _IDLE, "limits": like["resources"]["limits"]}
    command = idle_command(beside=True)
    return {**like, "name": GRADER_CONTAINER, "command": command, "resources": resources}


def _with_bundles(container: Json, sandbox: PodSandbox) -> Json:
    """Mount the files of other images and of claims. Graders don't have them."""
    sources: dict[str, Json] = {
        path: {"image": {"reference": image, "pullPolicy": sandbox.image_pull_policy}}
        for path, image in sandbox.bundles.items()
    }
    for path, claim in sandbox.bundle_claims.items():
        sources[path] = {"persistentVolumeClaim": {"claimName": claim, "readOnly": True}}
    paths = {f"bundle-{at}": path for at, path in enumerate(sorted(sources))}
    mounts = [{"name": n, "mountPath": path, "readOnly": True} for n, path in paths.items()]
    return {
        "containers": [{**container, "volumeMounts": mounts}],
        "volumes": [{"name": name, **sources[path]} for name, path in paths.items()],
    }


def reserved(wanted: Resources) -> Json:
    """Reserve memory and disk in full, so that a sandbox is never evicted for others' usage."""
    both = {"memory": wanted.memory, "ephemeral-storage": wanted.ephemeral_storage}
    limits = both if wanted.cpu_limit is None else {**both, "cpu": wanted.cpu_limit}
    return {"requests": {**both, "cpu": wanted.cpu}, "limits": limits}


def _slug(text: str, length: int) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:length].strip("-") or "x"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
