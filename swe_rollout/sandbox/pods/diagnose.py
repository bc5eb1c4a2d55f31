"""Why a sandbox pod does not start, or is lost: from its status to a typed error with the fix.

Pure functions of what Kubernetes says; `launch` watches and raises. What a command in the sandbox
does is never diagnosed here: it is a result.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from swe_rollout.errors import PrerequisiteError, SandboxError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from swe_rollout.cluster.api_error import ApiError
    from swe_rollout.cluster.objects import Condition, ContainerStatus, Event, Pod, Waiting
    from swe_rollout.errors import SweRolloutError


class ImageUnavailableError(SandboxError):
    """The image can't be had on the node."""


class UnschedulableError(SandboxError):
    """No node takes the pod."""

    scarce = True


class QuotaExceededError(SandboxError):
    """The namespace's quota is used up."""

    scarce = True


class PodRefusedError(SandboxError):
    """Admission or validation does not let the pod in."""


class PodStartError(SandboxError):
    """The pod was taken but its container does not come up."""


class OutOfMemoryError(SandboxError):
    """The whole sandbox was killed for memory."""


class PodLostError(SandboxError):
    """The pod was deleted, evicted or replaced, or its node is gone."""


class SandboxExpiredError(SandboxError):
    """The sandbox reached the end of its own life time."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A reason why a pod won't start, believed once it has stood for `settle_s`."""

    error: SandboxError
    settle_s: float = 0.0
    doubt_s: float = 1.0
    """How long it stands before it is worth a word, believed or not."""


_CERTAIN_S = 1.0
"""Reasons that the kubelet may still take back in the same breath."""
_PULL_S = 15.0
"""Registries hiccup: the kubelet's first new try, after 10 s, may succeed."""
_SCHEDULE_S = 10.0
"""Space may become free: sandboxes before us are being deleted."""
_CROWDED_S = 4.0
"""Where sandboxes fill the nodes, each waits for the one before it to end."""

_EVENTS = 5
_SAME_END = 60

PULL_REASONS = frozenset({"ErrImagePull", "ImagePullBackOff", "RegistryUnavailable"})
_NO_SUCH_IMAGE = re.compile(
    r"not found|manifest unknown|does not exist|access denied|unauthorized|denied|forbidden|"
    r"authorization failed|no match for platform",
    re.IGNORECASE,
)
_CONFIG_REASONS = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
)


def is_ready(pod: Pod) -> bool:
    """Whether commands can be run in it."""
    container = pod.container
    return container is not None and container.ready and container.state.running is not None


def start_finding(pod: Pod) -> Finding | None:
    """Why a pod that is not ready yet won't be; none while there is hope."""
    if (end := _end(pod)) is not None:
        return Finding(end)
    if (container := pod.container) is not None and container.state.waiting is not None:
        return _waiting(pod, container.state.waiting)
    scheduled = pod.status.condition("PodScheduled")
    if scheduled is not None and scheduled.status == "False":
        return _unscheduled(pod, scheduled)
    return None


def too_slow(pod: Pod, start_s: float) -> SandboxError:
    """The start took longer than the job allows; what the pod was waiting for."""
    container = pod.container
    waiting = container.state.waiting if container is not None else None
    unmet = [f"{c.type}: {c.reason}" for c in pod.status.conditions if c.status == "False"]
    words = [pod.status.phase, waiting.reason if waiting is not None else "", *unmet]
    return PodStartError(
        f"pod {pod.metadata.name} was not ready after {start_s:g} s",
        why=", ".join(word for word in words if word),
        fix="raise `sandbox.pod.startSeconds` where images are big and pulled afresh",
    )


def deleted(name: str) -> SandboxError:
    """The pod is gone, and not by us."""
    return PodLostError(
        f"pod {name} was deleted",
        why="somebody or something other than this run removed it, or its node is gone",
        fix="look for a node drain, a garbage collector or a second run of the same job",
    )


def loss(pod: Pod) -> SandboxError | None:
    """Why a pod that was ready is lost; none while nothing says so."""
    return _end(pod)


def refusal(error: ApiError, name: str) -> SweRolloutError:
    """What the API server means when it does not let a pod in.

    A PrerequisiteError is the job's own: no episode would fare better.
    """
    if error.forbidden and "exceeded quota" in error.message:
        return QuotaExceededError(
            f"pod {name} does not fit the quota",
            why=error.message,
            fix="lower `spec.parallelism` or `sandbox.pod.resources`, or raise the quota",
        )
    if error.forbidden and "violates PodSecurity" in error.message:
        return PrerequisiteError(
            "the namespace's Pod Security level does not let sandboxes in",
            why=error.message,
            fix="label the namespace pod-security.kubernetes.io/enforce=baseline; or, where no "
            "task needs root, set `sandbox.pod.runAsUser`",
        )
    if error.forbidden and "cannot create resource" in error.message:
        return PrerequisiteError(error.what, why=error.why, fix=error.fix)
    if error.forbidden or error.invalid:
        return PodRefusedError(
            f"pod {name} was refused",
            why=error.message,
            fix="check `sandbox.pod` of the job against the message",
            retryable=False,
        )
    return error


def first_contact(error: ApiError) -> SweRolloutError:
    """What a refusal before the first sandbox means: the job can't run as it is set up."""
    if error.retryable:
        return error
    return PrerequisiteError(error.what, why=error.why, fix=error.fix)


def scaling_up(events: Sequence[Event]) -> bool:
    """Whether a node is being added for the pod, so that waiting is worth it."""
    return any(event.reason in {"TriggeredScaleUp", "Nominated"} for event in events)


def with_events(error: SandboxError, events: Sequence[Event]) -> SandboxError:
    """The same error, its why completed by the last warnings that say something new."""
    for event in [event for event in events if event.type == "Warning"][-_EVENTS:]:
        # The kubelet repeats a container's reason in events, with another beginning.
        if event.message[-_SAME_END:].removeprefix("Error: ") not in error.why:
            error.why = "; ".join(filter(None, (error.why, f"{event.reason}: {event.message}")))
    return error


def _waiting(pod: Pod, waiting: Waiting) -> Finding | None:
    name = pod.metadata.name
    why = f"{waiting.reason}: {waiting.message}".strip(": ")
    match waiting.reason:
        case "InvalidImageName":
            fix = "mend the instance's image name"
            return Finding(_no_image(name, why, fix, retryable=False))
        case "ErrImageNeverPull":
            fix = "bring the image to the nodes, or set `sandbox.pod.imagePullPolicy: IfNotPresent`"
            return Finding(_no_image(name, why, fix, retryable=False))
        case reason if reason in PULL_REASONS:
            certain = _NO_SUCH_IMAGE.search(waiting.message) is not None
            fix = "check the name and the registry's credentials; `kubectl describe pod` has more"
            error = _no_image(name, why, fix, retryable=not certain)
            return Finding(error, settle_s=_CERTAIN_S if certain else _PULL_S)
        case reason if reason in _CONFIG_REASONS:
            fix = "the image needs /bin/sh; check `sandbox.pod` against the message"
            error = PodStartError(
                f"the container of pod {name} can't start", why=why, fix=fix, retryable=False
            )
            return Finding(error, settle_s=_CERTAIN_S)
        case _:
            return None


def _no_image(name: str, why: str, fix: str, *, retryable: bool) -> SandboxError:
    return ImageUnavailableError(
        f"the image of pod {name} is not available", why=why, fix=fix, retryable=retryable
    )


def _unscheduled(pod: Pod, scheduled: Condition) -> Finding:
    return Finding(
        UnschedulableError(
            f"no node takes pod {pod.metadata.name}",
            why=scheduled.message or scheduled.reason,
            fix="lower `sandbox.pod.resources` or `spec.parallelism`, or add nodes",
        ),
        settle_s=_SCHEDULE_S,
        doubt_s=_CROWDED_S,
    )


def _end(pod: Pod) -> SandboxError | None:
    """How the pod ended or is ending; none while it lives."""
    name = pod.metadata.name
    container = pod.container
    terminated = container.state.terminated if container is not None else None
    if terminated is not None and terminated.reason == "OOMKilled":
        return OutOfMemoryError(
            f"pod {name} was killed for memory",
            why=f"OOMKilled, exit code {terminated.exit_code}",
            fix="raise `sandbox.pod.resources.memory`",
        )
    if pod.status.phase == "Failed" and pod.status.reason == "DeadlineExceeded":
        return SandboxExpiredError(
            f"pod {name} reached its life time",
            why=pod.status.message or "activeDeadlineSeconds is over",
            fix="lower `limits.episodeSeconds`, or find what took so long",
        )
    if (why := _disruption(pod)) is not None:
        fix = "the attempt is repeated; frequent losses mean that nodes are short of memory or disk"
        return PodLostError(f"pod {name} was lost", why=why, fix=fix)
    return _stopped(name, container)


def _disruption(pod: Pod) -> str | None:
    target = pod.status.condition("DisruptionTarget")
    if target is not None and target.status == "True":
        return f"{target.reason}: {target.message}"
    if pod.status.phase == "Failed" and pod.status.reason:
        return f"{pod.status.reason}: {pod.status.message}".strip(": ")
    if pod.metadata.deletion_timestamp is not None:
        return "it is being deleted, and not by this run"
    if pod.status.phase == "Unknown":
        return "its node does not report"
    return None


def _stopped(name: str, container: ContainerStatus | None) -> SandboxError | None:
    if container is None:
        return None
    if container.state.terminated is not None:
        ended = container.state.terminated
        if ended.exit_code == 0:
            return PodLostError(
                f"pod {name} was ended",
                why="its stream was lost, or a command in it ended process 1",
                fix="the attempt is repeated",
            )
        return PodStartError(
            f"the container of pod {name} ended",
            why=f"exit code {ended.exit_code} {ended.reason} {ended.message}".strip(),
            fix="the image needs /bin/sh and sleep; a command may have killed process 1",
        )
    if container.restart_count > 0:
        return PodLostError(
            f"the container of pod {name} was restarted",
            why=f"{container.restart_count} times: its files and processes are not the same",
            fix="the attempt is repeated",
        )
    return None
