"""Build manifests of the objects that the operator creates: pure functions of a job's spec.

These are the worker Job, its service account and role binding, and the policy that isolates
sandboxes. Manifests are JSON documents.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from copy import deepcopy
from typing import Final, TypeAlias

from rollout_operator.observed import DIGEST_ANNOTATION, Metadata
from swe_rollout.spec.job import API_VERSION, KIND, RolloutJobSpec
from swe_rollout.spec.model import Model
from swe_rollout.spec.sandbox import Resources
from swe_rollout.spec.status import JOB_LABEL, JOB_UID_LABEL, ROLE_LABEL
from swe_rollout.spec.worker_exits import FATAL, WorkerExitCode

JsonValue: TypeAlias = "str | int | bool | list[JsonValue] | dict[str, JsonValue] | None"
Json: TypeAlias = dict[str, JsonValue]

WORKER_ROLE: Final = "worker"
CONTAINER: Final = "worker"
CLUSTER_ROLE: Final = "swe-rollout-worker"
"""The installation's role: what every worker may do in its job's namespace."""
POLICY_NAME: Final = "swe-rollout-sandboxes-deny-all"
SANDBOXES: Final = f"{ROLE_LABEL} in (agent,grader)"
"""The label selector of all sandbox pods."""
QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
"""Label of a worker Job that starts suspended until its queue admits it."""
METRICS_PORT: Final = 9464
"""The port on which workers serve metrics, named `metrics`."""

_MANAGED_BY: Final[Json] = {"app.kubernetes.io/managed-by": "swe-rollout"}
POLICY_LABELS: Final[dict[str, str]] = {
    "app.kubernetes.io/managed-by": "swe-rollout",
    "app.kubernetes.io/component": "operator",
}
"""Distinguish the operator's policies from those of a `run` outside the cluster, which stay."""
_SCRAPED: Final[Json] = {
    "prometheus.io/scrape": "true",
    "prometheus.io/port": str(METRICS_PORT),
}
_DRAIN_SECONDS: Final = 60
_KILLED: Final = 137
"""The exit code after SIGKILL, usually for lack of memory."""
_RESTARTS: Final[Json] = {
    "restartPolicy": "Never",
    "restartPolicyRules": [
        {"action": "Restart", "exitCodes": {"operator": "In", "values": [_KILLED]}}
    ],
}
"""Restart a killed worker within its pod. The Job would wait before creating another pod: ten
seconds at first, doubling each time."""
SANDBOX_KEY: Final = "SWE_ROLLOUT_SANDBOX_KEY"
SANDBOX_KEY_SECRET: Final = "swe-rollout-sandbox-key"  # noqa: S105 (its name)
_LIVES_FILE: Final = "/tmp/lives"  # noqa: S108 - a volume
"""Where a worker counts its lives: nothing else stops a container that keeps being killed."""
_FAILURES_PER_INDEX: Final = 20
"""Crashes before an index is given up: too many for bad luck, but not endless."""


def workers_name(job: str) -> str:
    """Return the name of the worker Job."""
    return f"{job}-workers"


def access_name(uid: str) -> str:
    """Return the name of the workers' service account and its binding.

    The API server picks a job's uid at random, so nobody can have granted rights to this name
    before, and no job can choose the name of another's account.
    """
    return f"swe-rollout-worker-{uid}"


def sandbox_selector(job: str) -> str:
    """Return the label selector of the job's sandbox pods."""
    return f"{JOB_LABEL}={job},{SANDBOXES}"


def worker_selector(job: str) -> str:
    """Return the label selector of the job's worker Job and its pods."""
    return f"{JOB_LABEL}={job},{ROLE_LABEL}={WORKER_ROLE}"


def queued(spec: RolloutJobSpec) -> bool:
    """Whether a queue decides when the workers run."""
    return QUEUE_LABEL in spec.workers.labels


def digest(spec: RolloutJobSpec) -> str:
    """Hash the settings whose change needs new worker pods. The operator's own image is not one: a
    new operator leaves running workers alone, even if it knows more fields.
    """
    # A count of 1 was once the default, which is not part of the hash.
    left_out = {"count"} if spec.workers.count == 1 else None
    text = spec.workers.model_dump_json(by_alias=True, exclude_defaults=True, exclude=left_out)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def deadline_seconds(spec: RolloutJobSpec) -> int | None:
    """Return the worker Job's deadline in whole seconds."""
    seconds = spec.active_deadline_seconds
    return None if seconds is None else math.ceil(seconds)


def worker_job(job: Metadata, spec: RolloutJobSpec, *, image: str, count: int) -> Json:
    """Build the Indexed Job, with one index for each of `count` shards."""
    labels = {**spec.workers.labels, **_labels(job)}
    body: Json = {
        "completionMode": "Indexed",
        "completions": count,
        "parallelism": count,
        "suspend": queued(spec),
        "backoffLimitPerIndex": _FAILURES_PER_INDEX,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {"rules": _failure_rules()},
        "template": {
            "metadata": {"labels": {**labels}, "annotations": {**_SCRAPED}},
            "spec": _pod(job, spec, image=spec.workers.image or image, count=count),
        },
    }
    if (deadline := deadline_seconds(spec)) is not None:
        body["activeDeadlineSeconds"] = deadline
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": workers_name(job.name),
            "namespace": job.namespace,
            "labels": {**labels},
            "annotations": {DIGEST_ANNOTATION: digest(spec)},
            "ownerReferences": [_owner(job)],
        },
        "spec": body,
    }


def without_restarts(worker_job: Json) -> Json:
    """Return the worker Job for clusters before 1.35, which can't restart single containers."""
    copy = deepcopy(worker_job)
    match copy:
        case {"spec": {"template": {"spec": {"containers": [dict(container)]}}}}:
            for name in _RESTARTS:
                del container[name]
    return copy


def service_account(job: Metadata, annotations: Mapping[str, str]) -> Json:
    """Build the workers' service account."""
    head = _access_head(job, "v1", "ServiceAccount", annotations)
    return {**head, "automountServiceAccountToken": False}


def role_binding(job: Metadata) -> Json:
    """Bind the workers' role, created by the installation, to the service account."""
    group = "rbac.authorization.k8s.io"
    account: Json = {
        "kind": "ServiceAccount",
        "name": access_name(job.uid),
        "namespace": job.namespace,
    }
    return {
        **_access_head(job, f"{group}/v1", "RoleBinding", {}),
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": CLUSTER_ROLE},
        "subjects": [account],
    }


def network_policy(namespace: str) -> Json:
    """Deny all traffic to and from the namespace's sandboxes.

    No job owns it: the cluster would delete it with the last job, perhaps before that job's last
    sandbox. The operator deletes it afterwards.
    """
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": POLICY_NAME,
            "namespace": namespace,
            "labels": {**POLICY_LABELS},
        },
        "spec": {
            "podSelector": {
                "matchExpressions": [
                    {"key": ROLE_LABEL, "operator": "In", "values": ["agent", "grader"]}
                ]
            },
            "policyTypes": ["Ingress", "Egress"],
        },
    }


def _access_head(
    job: Metadata, api_version: str, kind: str, annotations: Mapping[str, str]
) -> Json:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": access_name(job.uid),
            "namespace": job.namespace,
            "labels": {**_MANAGED_BY, JOB_LABEL: job.name},
            "annotations": {**annotations},
            "ownerReferences": [_owner(job)],
        },
    }


def _owner(job: Metadata) -> Json:
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": job.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _labels(job: Metadata) -> dict[str, JsonValue]:
    uid: Json = {JOB_UID_LABEL: job.uid}
    return {**_MANAGED_BY, JOB_LABEL: job.name, **uid, ROLE_LABEL: WORKER_ROLE}


def _failure_rules() -> list[JsonValue]:
    """Fail the job for job-level exit codes; ignore drained and disrupted pods."""

    def exits(action: str, codes: list[JsonValue]) -> Json:
        on_exit: Json = {"containerName": CONTAINER, "operator": "In", "values": codes}
        return {"action": action, "onExitCodes": on_exit}

    return [
        exits("FailJob", list(FATAL)),
        exits("Ignore", [WorkerExitCode.DRAINED]),
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ]


def _pod(job: Metadata, spec: RolloutJobSpec, *, image: str, count: int) -> Json:
    workers = spec.workers
    return {
        "serviceAccountName": access_name(job.uid),
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        # As process 1, the worker would lose a SIGTERM that arrives before it handles signals.
        "shareProcessNamespace": True,
        "terminationGracePeriodSeconds": _DRAIN_SECONDS,
        "nodeSelector": {**workers.node_selector},
        "tolerations": [_manifest(each) for each in workers.tolerations],
        "imagePullSecrets": [_manifest(each) for each in workers.image_pull_secrets],
        "securityContext": {
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(job, spec, image=image, count=count)],
        "volumes": [
            {"name": "tmp", "emptyDir": {"sizeLimit": workers.resources.ephemeral_storage}}
        ],
    }


def _container(job: Metadata, spec: RolloutJobSpec, *, image: str, count: int) -> Json:
    workers = spec.workers
    return {
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": workers.image_pull_policy,
        "command": ["swe-rollout", "worker", "--namespace", job.namespace, "--job", job.name],
        "env": [
            _field("POD_NAME", "metadata.name"),
            # Variables, because images of earlier versions, which serve no metrics, ignore them.
            {"name": "SWE_ROLLOUT_WORKER_METRICS", "value": f":{METRICS_PORT}"},
            {"name": "SWE_ROLLOUT_WORKER_LIVES", "value": _LIVES_FILE},
            {"name": "SWE_ROLLOUT_WORKER_COUNT", "value": str(count)},
            _sandbox_key(),
        ],
        "ports": [{"name": "metrics", "containerPort": METRICS_PORT}],
        "envFrom": [{"secretRef": {"name": name}} for name in workers.secrets],
        "resources": _resources(workers.resources),
        **_RESTARTS,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108 - a volume
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _sandbox_key() -> Json:
    """Take the namespace's key, by which workers attach to sandboxes that live, if it has one."""
    source: Json = {"name": SANDBOX_KEY_SECRET, "key": SANDBOX_KEY, "optional": True}
    return {"name": SANDBOX_KEY, "valueFrom": {"secretKeyRef": source}}


def _manifest(model: Model) -> JsonValue:
    found: Json = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return found


def _field(name: str, path: str) -> Json:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _resources(wanted: Resources) -> Json:
    both: Json = {"memory": wanted.memory, "ephemeral-storage": wanted.ephemeral_storage}
    limits = both if wanted.cpu_limit is None else {**both, "cpu": wanted.cpu_limit}
    return {"requests": {**both, "cpu": wanted.cpu}, "limits": {**limits}}
