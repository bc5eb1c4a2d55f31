"""Diagnose why a sandbox pod does not start or was lost: turn its status into a typed error.

Pure functions of the objects that Kubernetes reports; `launch` and `channel` watch and raise. The
outcome of a command in the sandbox is never diagnosed here: it is a result.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from swe_rollout.cluster.api_error import ApiError
from swe_rollout.cluster.objects import (
    ContainerStatus,
    KubernetesCondition,
    KubernetesEvent,
    Pod,
    Waiting,
)
from swe_rollout.errors import (
    PrerequisiteError,
    SandboxDestroyedError,
    SandboxError,
    SweRolloutError,
)
from swe_rollout.sandbox.pods.pod_spec import CONTAINER


class ImageUnavailableError(SandboxError):
    """The node can't get the image."""


class UnschedulableError(SandboxError):
    """No node has room for the pod."""

    scarce = True


class QuotaExceededError(SandboxError):
    """The namespace's quota is used up."""

    scarce = True


class PodRefusedError(SandboxError):
    """Admission or validation rejected the pod."""


class PodStartError(SandboxError):
    """The pod was created but its container does not start."""


class BundleMissingError(PodStartError):
    """The pod's node has no copy of a bundle yet, or the claim has no volume."""


class OutOfMemoryError(SandboxDestroyedError):
    """The whole sandbox was killed for exceeding its memory."""


class OutOfDiskError(SandboxDestroyedError):
    """The pod was evicted for more local storage than its own limit; the node had enough."""


class PodLostError(SandboxError):
    """The pod was deleted, evicted or replaced, or its node is gone."""


class SandboxExpiredError(SandboxError):
    """The sandbox reached the end of its own lifetime."""


@dataclass(frozen=True, slots=True)
class StartProblem:
    """A reason why a pod does not start, raised once it has persisted for `settle_s`."""

    error: SandboxError
    settle_s: float = 0.0
    warn_s: float = 1.0
    """How long it persists before a warning is issued, whether or not it is raised later."""


_CERTAIN_S = 1.0
"""How long a reason must persist if the kubelet may retract it a moment later."""
_PULL_S = 15.0
"""Registries fail temporarily: the kubelet's first retry, after 10 s, may succeed."""
_SCHEDULE_S = 10.0
"""Room may become free: earlier sandboxes are being deleted."""
_CROWDED_WARN_S = 4.0
"""When sandboxes fill the nodes, a short wait for an earlier one to end is normal."""

_BUNDLE_WARN_S = 5.0
"""Volumes are mounted in a second or two."""
_FOR_EVER_S = 86_400.0

_MAX_EVENTS = 5
_COMPARED_CHARS = 60

PULL_REASONS = frozenset({"ErrImagePull", "ImagePullBackOff", "RegistryUnavailable"})
_NO_SUCH_IMAGE = re.compile(
    r"not found|manifest unknown|does not exist|access denied|unauthorized|denied|forbidden|"
    r"authorization failed|no match for platform",
    re.IGNORECASE,
)
# The kubelet's words for a limit of the pod itself; under pressure it says that the node was low.
_OWN_DISK = re.compile(
    r"^(Pod ephemeral local storage usage exceeds"
    r"|Container \S+ exceeded its local ephemeral storage"
    r"|Usage of EmptyDir volume)"
)
_CONFIG_REASONS = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
)
_BUSY_RUNTIME = re.compile(r"deadline exceeded|is reserved for|temporarily unavailable")
"""What a container runtime says that has too much to do; the kubelet asks it again."""


def is_ready(pod: Pod, name: str = CONTAINER) -> bool:
    """Whether commands can be run in the pod's container of that name."""
    container = pod.container_of(name)
    return container is not None and container.ready and container.state.running is not None


def start_problem(pod: Pod) -> StartProblem | None:
    """Diagnose why a pod does not become ready; None while nothing is wrong."""
    if (error := loss_error(pod)) is not None:
        return StartProblem(_before_start(error))
    container = pod.container_of(CONTAINER)
    if container is not None and container.state.waiting is not None:
        return _waiting_problem(pod, container.state.waiting)
    scheduled = pod.status.condition("PodScheduled")
    if scheduled is not None and scheduled.status == "False":
        return _unscheduled_problem(pod, scheduled)
    return None


def bundle_problem(pod: Pod) -> StartProblem | None:
    """Diagnose why a pod with claims does not become ready: it waits until the node has them."""
    scheduled = pod.status.condition("PodScheduled")
    mounted = pod.status.condition("PodReadyToStartContainers")
    if scheduled is None or scheduled.status != "True" or mounted is None:
        return None
    if mounted.status != "False":
        return None
    error = BundleMissingError(
        f"pod {pod.metadata.name} waits for its node's copy of a bundle",
        fix="it starts once the copy is there: `kubectl -n swe-rollout-bundles get pods -o wide` "
        "shows which nodes have theirs",
    )
    return StartProblem(error, settle_s=_FOR_EVER_S, warn_s=_BUNDLE_WARN_S)


def slow_start_error(pod: Pod, start_s: float) -> SandboxError:
    """Build the error for a start that exceeded the job's limit, with what the pod waits for."""
    container = pod.container_of(CONTAINER)
    waiting = container.state.waiting if container is not None else None
    unmet = [f"{c.type}: {c.reason}" for c in pod.status.conditions if c.status == "False"]
    parts = [pod.status.phase, waiting.reason if waiting is not None else "", *unmet]
    return PodStartError(
        f"pod {pod.metadata.name} was not ready after {start_s:g} s",
        why=", ".join(part for part in parts if part),
        fix="raise `sandbox.pod.startSeconds` where large images are pulled first",
    )


def deleted_error(name: str) -> SandboxError:
    """Build the error for a pod that was deleted, but not by this run."""
    return PodLostError(
        f"pod {name} was deleted",
        why="a user or a process other than this run deleted it, or its node is gone",
        fix="check for a node drain, a garbage collector or a second run of the same job",
    )


def creation_error(error: ApiError, name: str) -> SweRolloutError:
    """Convert the API server's refusal to create a pod to a specific error.

    A PrerequisiteError concerns the whole job: every other episode would fail the same way.
    """
    if error.forbidden and "exceeded quota" in error.message:
        return QuotaExceededError(
            f"pod {name} does not fit the quota",
            why=error.message,
            fix="lower `spec.parallelism` or `sandbox.pod.resources`, or raise the quota",
        )
    if error.forbidden and "violates PodSecurity" in error.message:
        return PrerequisiteError(
            "the namespace's Pod Security level does not allow sandboxes",
            why=error.message,
            fix="label the namespace pod-security.kubernetes.io/enforce=baseline; or, where no "
            "task needs root, set `sandbox.pod.runAsUser`",
        )
    if error.lacks_right:
        return PrerequisiteError(error.what, why=error.why, fix=error.fix)
    if error.forbidden and "because it is being terminated" in error.message:
        return PrerequisiteError(
            "the job's namespace is being deleted",
            why=error.message,
            fix="run the job in another namespace; what it committed counts",
        )
    if error.forbidden or error.invalid:
        return PodRefusedError(
            f"pod {name} was refused",
            why=error.message,
            fix="change `sandbox.pod` of the job as the message requires",
            retryable=False,
        )
    return error


def setup_error(error: ApiError) -> SweRolloutError:
    """Convert a refusal before the first sandbox: the job can't run with this configuration."""
    if error.retryable:
        return error
    return PrerequisiteError(error.what, why=error.why, fix=error.fix)


def with_events(error: SandboxError, events: Sequence[KubernetesEvent]) -> SandboxError:
    """Append the last warnings that add information to the error's why, and return it."""
    for event in [event for event in events if event.type == "Warning"][-_MAX_EVENTS:]:
        # The kubelet repeats a container's reason in events, with a different prefix.
        if event.message[-_COMPARED_CHARS:].removeprefix("Error: ") not in error.why:
            error.why = "; ".join(filter(None, (error.why, f"{event.reason}: {event.message}")))
    return error


def _waiting_problem(pod: Pod, waiting: Waiting) -> StartProblem | None:
    name = pod.metadata.name
    why = f"{waiting.reason}: {waiting.message}".strip(": ")
    match waiting.reason:
        case "InvalidImageName":
            fix = "correct the instance's image name"
            return StartProblem(_image_error(name, why, fix, retryable=False))
        case "ErrImageNeverPull":
            fix = "load the image on the nodes, or set `sandbox.pod.imagePullPolicy: IfNotPresent`"
            return StartProblem(_image_error(name, why, fix, retryable=False))
        case reason if reason in PULL_REASONS:
            is_certain = _NO_SUCH_IMAGE.search(waiting.message) is not None
            fix = "check the name and the registry's credentials; see `kubectl describe pod`"
            error = _image_error(name, why, fix, retryable=not is_certain)
            return StartProblem(error, settle_s=_CERTAIN_S if is_certain else _PULL_S)
        case reason if reason in _CONFIG_REASONS:
            is_busy = _BUSY_RUNTIME.search(waiting.message) is not None
            fix = "use an image with /bin/sh; change `sandbox.pod` as the message requires"
            error = PodStartError(
                f"the container of pod {name} can't start", why=why, fix=fix, retryable=is_busy
            )
            return StartProblem(error, settle_s=_PULL_S if is_busy else _CERTAIN_S)
        case _:
            return None


def _image_error(name: str, why: str, fix: str, *, retryable: bool) -> SandboxError:
    return ImageUnavailableError(
        f"the image of pod {name} is not available", why=why, fix=fix, retryable=retryable
    )


def _unscheduled_problem(pod: Pod, scheduled: KubernetesCondition) -> StartProblem:
    return StartProblem(
        UnschedulableError(
            f"pod {pod.metadata.name} can't be scheduled on any node",
            why=scheduled.message or scheduled.reason,
            fix="lower `sandbox.pod.resources` or `spec.parallelism`, or add nodes",
        ),
        settle_s=_SCHEDULE_S,
        warn_s=_CROWDED_WARN_S,
    )


def loss_error(pod: Pod, used: str = CONTAINER) -> SandboxError | None:
    """Diagnose how the pod, or the `used` container, ended or is ending; None while it is alive."""
    name = pod.metadata.name
    container = pod.container_of(used)
    terminated = container.state.terminated if container is not None else None
    if terminated is not None and terminated.reason == "OOMKilled":
        return OutOfMemoryError(
            f"pod {name} was killed for exceeding its memory",
            why=f"OOMKilled, exit code {terminated.exit_code}",
            fix="raise `sandbox.pod.resources.memory`",
        )
    if pod.status.phase == "Failed" and pod.status.reason == "DeadlineExceeded":
        return SandboxExpiredError(
            f"pod {name} reached the end of its lifetime",
            why=pod.status.message or "activeDeadlineSeconds is over",
            fix="lower `limits.episodeSeconds`, or find out what took so long",
        )
    if pod.status.reason == "Evicted" and _OWN_DISK.search(pod.status.message):
        return OutOfDiskError(
            f"pod {name} was evicted for exceeding its own disk",
            why=f"{pod.status.reason}: {pod.status.message}",
            fix="raise `sandbox.pod.resources.ephemeralStorage`",
        )
    if (why := _disruption(pod)) is not None:
        fix = "the attempt is repeated; frequent losses mean that nodes lack memory or disk"
        return PodLostError(f"pod {name} was lost", why=why, fix=fix)
    return _container_loss(name, container)


def _before_start(error: SandboxError) -> SandboxError:
    """Return the error for a pod that ended before any command could run in it."""
    if isinstance(error, SandboxDestroyedError):
        return PodStartError(error.what, why=error.why, fix=error.fix)
    if isinstance(error, PodLostError) and error.why.startswith("OutOf"):
        # The node's kubelet still counts pods that end, which the scheduler no longer does.
        return UnschedulableError(error.what, why=error.why, fix=error.fix)
    return error


def _disruption(pod: Pod) -> str | None:
    target = pod.status.condition("DisruptionTarget")
    if target is not None and target.status == "True":
        return f"{target.reason}: {target.message}"
    if pod.status.phase == "Failed" and pod.status.reason:
        return f"{pod.status.reason}: {pod.status.message}".strip(": ")
    if pod.metadata.deletion_timestamp is not None:
        return "it is being deleted, and not by this run"
    if pod.status.phase == "Unknown":
        return "its node does not report its status"
    return None


def _container_loss(name: str, container: ContainerStatus | None) -> SandboxError | None:
    if container is None:
        return None
    if container.state.terminated is not None:
        exited = container.state.terminated
        if exited.exit_code == 0:
            return PodLostError(
                f"pod {name} was ended",
                why="its stream was lost, or a command in it ended process 1",
                fix="the attempt is repeated",
            )
        return PodStartError(
            f"the container of pod {name} ended",
            why=f"exit code {exited.exit_code} {exited.reason} {exited.message}".strip(),
            fix="use an image with /bin/sh and sleep; a command may have killed process 1",
        )
    if container.restart_count > 0:
        return PodLostError(
            f"the container of pod {name} was restarted",
            why=f"{container.restart_count} times: its files and processes are lost",
            fix="the attempt is repeated",
        )
    return None
