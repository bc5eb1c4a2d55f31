"""Diagnose why workers do not start or keep running, from Kubernetes' own state.

Workers themselves report why sandboxes, engine or store fail (`WorkerProgress.unmet`); this module
covers failures that they can't report because they don't run. It gives a typed reason and a fix.
"""

from __future__ import annotations

from rollout_operator.observed import Observed, WorkerPod
from rollout_operator.resources import workers_name
from rollout_operator.sightings import Stage
from swe_rollout.spec.status import REACHES_API_S, ConditionType, UnmetCondition
from swe_rollout.spec.worker_exits import FATAL, WorkerExitCode

SETTLE_S = 5.0
"""How long to wait for problems that may pass, such as a busy scheduler."""
SILENCE_S = 2 * REACHES_API_S
"""How long a running worker may report nothing: one of ours has reported or ended long before."""
_MESSAGE_CHARS = 1000
_IMAGE_REASONS = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}
)
_CONFIG_REASONS = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
)


def unmet_worker_condition(observed: Observed) -> UnmetCondition | None:
    """Find the first reason why a shard has no worker; None if all have one."""
    if observed.refusal:
        return _refused(observed.refusal)
    for pod in observed.newest_pods:
        there_s = observed.age_s(pod.metadata.uid, Stage.THERE)
        running_s = observed.age_s(pod.metadata.uid, Stage.RUNNING)
        found = (
            _waiting(pod) or _unscheduled(pod, there_s) or _crashed(pod) or _silent(pod, running_s)
        )
        if found is not None:
            return found
    return None


def fatal_message(observed: Observed) -> str:
    """Return the termination message of the worker that failed the job; empty if there is none."""
    for pod in reversed(observed.pods):
        ended = pod.ended
        if ended is not None and ended.exit_code in FATAL:
            return one_line(ended.message)
    return ""


def one_line(text: str) -> str:
    """Shorten text for a condition, keeping its end, where logs name the cause."""
    return " ".join(text.split())[-_MESSAGE_CHARS:]


def _unmet(reason: str, what: str, why: str, fix: str) -> UnmetCondition:
    message = f"{what}: {one_line(why)}; {fix}"
    return UnmetCondition(condition=ConditionType.SANDBOXES_READY, reason=reason, message=message)


def _refused(refusal: str) -> UnmetCondition:
    if "exceeded quota" in refusal:
        return _unmet(
            "WorkerQuotaExceeded",
            "a worker exceeds the namespace's quota",
            refusal,
            "lower spec.workers.count or spec.workers.resources, or raise the quota",
        )
    return _unmet(
        "WorkerRefused",
        "the cluster refuses an object that the workers need",
        refusal,
        "check spec.workers, the namespace and the operator's rights against the message",
    )


def _waiting(pod: WorkerPod) -> UnmetCondition | None:
    found = pod.status.container_statuses
    waiting = found[0].state.waiting if found else None
    if waiting is None:
        return None
    why = f"{waiting.reason}: {waiting.message}".strip(": ")
    if waiting.reason in _IMAGE_REASONS:
        return _unmet(
            "WorkerImageUnavailable",
            f"the image of worker {pod.index} is not available",
            why,
            "check spec.workers.image (none: the operator's WORKER_IMAGE) and the registry's "
            "credentials",
        )
    if waiting.reason in _CONFIG_REASONS:
        return _unmet(
            "WorkerStartFailed",
            f"worker {pod.index} can't start",
            why,
            "check that the Secrets of spec.workers.secrets exist in the job's namespace, and "
            "that spec.workers.image is an image of swe-rollout",
        )
    return None


def _unscheduled(pod: WorkerPod, there_s: float) -> UnmetCondition | None:
    scheduled = pod.status.condition("PodScheduled")
    if scheduled is None or scheduled.status != "False" or not pod.live or there_s < SETTLE_S:
        return None
    return _unmet(
        "WorkerUnschedulable",
        f"no node can run worker {pod.index}",
        scheduled.message or scheduled.reason,
        "lower spec.workers.resources, correct spec.workers.nodeSelector, or add nodes",
    )


def _crashed(pod: WorkerPod) -> UnmetCondition | None:
    """Explain a crash, after which the next start is delayed, longer each time."""
    ended = pod.ended
    expected = (0, WorkerExitCode.DRAINED, *FATAL)
    if ended is None or ended.exit_code in expected or _is_evicted(pod):
        return None
    is_at_end = ended.exit_code == WorkerExitCode.KILLED_TOO_OFTEN
    if ended.reason == "OOMKilled" or (is_at_end and pod.was_out_of_memory):
        return _unmet(
            "WorkerOutOfMemory",
            f"worker {pod.index} was killed: out of memory",
            f"exit code {ended.exit_code}",
            "raise spec.workers.resources.memory, or lower spec.parallelism",
        )
    return _unmet(
        "WorkerCrashed",
        f"worker {pod.index} crashed and will be replaced",
        f"exit code {ended.exit_code} {ended.reason} {ended.message}",
        f"`kubectl logs job/{workers_name(_job(pod))}` has more; image and Secrets are the "
        "usual causes",
    )


def _silent(pod: WorkerPod, running_s: float) -> UnmetCondition | None:
    """Explain a silent worker: it is not ours, or may not annotate its pod."""
    since = pod.started_at
    if not pod.running or pod.progress is not None or since is None or running_s < SILENCE_S:
        return None
    return _unmet(
        "WorkerSilent",
        f"worker {pod.index} has reported nothing yet",
        f"it runs since {since:%H:%M:%S} UTC, and a worker reports once it reaches the API server, "
        f"or ends after {REACHES_API_S:g} s",
        "check that spec.workers.image is an image of swe-rollout; "
        f"`kubectl logs {pod.metadata.name}` shows what it does",
    )


def _is_evicted(pod: WorkerPod) -> bool:
    """Whether the pod was deleted or disrupted, rather than failing by itself."""
    target = pod.status.condition("DisruptionTarget")
    disrupted = target is not None and target.status == "True"
    return disrupted or pod.metadata.deletion_timestamp is not None


def _job(pod: WorkerPod) -> str:
    return pod.metadata.name.rpartition("-workers-")[0]
