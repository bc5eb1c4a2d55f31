"""From a pod's status to a typed error with why and fix."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from swe_rollout.cluster.api_error import ApiError, api_error
from swe_rollout.cluster.objects import KubernetesEvent, Pod
from swe_rollout.errors import (
    PrerequisiteError,
    SandboxDestroyedError,
    SandboxError,
    SweRolloutError,
)
from swe_rollout.sandbox.pods import diagnose


def pod(metadata: dict[str, str] | None = None, /, **status: Any) -> Pod:
    names = {"name": "p", "uid": "u", "namespace": "n"}
    body = {"metadata": names | (metadata or {}), "status": status}
    return msgspec.json.decode(json.dumps(body), type=Pod)


def container(**state: Any) -> list[dict[str, Any]]:
    return [{"name": "sandbox", "state": state, "ready": "running" in state, "restartCount": 0}]


def waiting(reason: str, message: str = "") -> Pod:
    state = {"waiting": {"reason": reason, "message": message}}
    return pod(phase="Pending", containerStatuses=container(**state))


def condition(kind: str, status: str, reason: str, message: str = "") -> list[dict[str, str]]:
    return [{"type": kind, "status": status, "reason": reason, "message": message}]


def failed(reason: str, message: str = "", **more: Any) -> Pod:
    return pod(phase="Failed", reason=reason, message=message, **more)


def ended(exit_code: int, reason: str = "", *, phase: str = "Failed", message: str = "") -> Pod:
    state = {"exitCode": exit_code, "reason": reason, "message": message}
    return pod(phase=phase, containerStatuses=container(terminated=state))


NO_NODE = "0/3 nodes are available: 3 Insufficient cpu."
UNSCHEDULED = pod(
    phase="Pending", conditions=condition("PodScheduled", "False", "Unschedulable", NO_NODE)
)
TOO_BUSY = "context deadline exceeded"
NO_ROOM_LEFT = "Pod was rejected: Node didn't have enough resource: cpu, requested: 500, used: 1700"
OUT_OF_MEMORY = ended(137, "OOMKilled")
UNREACHABLE = waiting("ImagePullBackOff", "dial tcp: i/o timeout")


@pytest.mark.parametrize(
    "subject",
    [
        pod(phase="Pending"),
        waiting("ContainerCreating"),
        waiting("PodInitializing"),
        pod(phase="Running", containerStatuses=container(running={})),
    ],
)
def test_a_pod_that_is_still_starting_has_no_problem(subject: Pod) -> None:
    assert diagnose.start_problem(subject) is None
    assert diagnose.loss_error(subject) is None


def test_a_pod_is_ready_when_its_container_runs_and_says_so() -> None:
    assert diagnose.is_ready(pod(containerStatuses=container(running={"startedAt": "now"})))
    assert not diagnose.is_ready(waiting("ContainerCreating"))
    assert not diagnose.is_ready(pod())


@pytest.mark.parametrize(
    ("subject", "kind", "retryable", "settle_s", "why"),
    [
        (waiting("ErrImageNeverPull", "no such"), "ImageUnavailable", False, (0, 0), "no such"),
        (waiting("InvalidImageName", "no such"), "ImageUnavailable", False, (0, 0), "no such"),
        *(
            (waiting("ErrImagePull", message), "ImageUnavailable", False, (0, 5), message)
            for message in (
                'failed to resolve reference "docker.io/a/b:1": docker.io/a/b:1: not found',
                "pull access denied, repository does not exist or may require authorization",
                "unexpected status from HEAD request: 403 Forbidden",
            )
        ),
        (UNREACHABLE, "ImageUnavailable", True, (10, 99), "i/o timeout"),
        (UNSCHEDULED, "Unschedulable", True, (5, 99), NO_NODE),
        (waiting("CreateContainerError", "stat /bin/sh"), "PodStart", False, (0, 5), "stat /bin"),
        (waiting("CreateContainerError", TOO_BUSY), "PodStart", True, (10, 99), "deadline"),
        (failed("OutOfcpu", NO_ROOM_LEFT), "Unschedulable", True, (0, 0), NO_ROOM_LEFT),
        # Issue 16, point 4: before any command it is no policy's doing.
        (OUT_OF_MEMORY, "PodStart", True, (0, 0), "OOMKilled"),
    ],
)
def test_a_pod_that_does_not_start_has_a_problem_that_has_to_persist(
    subject: Pod, kind: str, *, retryable: bool, settle_s: tuple[float, float], why: str
) -> None:
    problem = diagnose.start_problem(subject)
    assert problem is not None
    assert type(problem.error) is getattr(diagnose, f"{kind}Error")
    assert problem.error.retryable is retryable
    assert settle_s[0] <= problem.settle_s <= settle_s[1]
    assert why in problem.error.why
    assert problem.error.fix


def test_an_unschedulable_pod_persists_longer_before_a_warning() -> None:
    crowded, pulled = diagnose.start_problem(UNSCHEDULED), diagnose.start_problem(UNREACHABLE)
    assert crowded is not None
    assert pulled is not None
    assert pulled.warn_s < crowded.warn_s < crowded.settle_s
    assert pulled.warn_s < pulled.settle_s


KUBELET = condition("DisruptionTarget", "True", "TerminationByKubelet")
LOW = (
    "The node was low on resource: ephemeral-storage. Threshold quantity: 1Gi, available: 2Ki. "
    "Container sandbox was using 9Gi, request is 4Gi, has larger consumption of ephemeral-storage. "
)


@pytest.mark.parametrize(
    ("subject", "kind", "why"),
    [
        (OUT_OF_MEMORY, "OutOfMemory", "exit code 137"),
        # Issue 16, point 4: the limit is the pod's; the node had room.
        *(
            (failed("Evicted", message, conditions=KUBELET), "OutOfDisk", message.strip())
            for message in (
                "Pod ephemeral local storage usage exceeds the total limit of containers 4Gi. ",
                'Container sandbox exceeded its local ephemeral storage limit "4Gi". ',
                'Usage of EmptyDir volume "work" exceeds the limit "1Gi". ',
            )
        ),
        # Issue 16, point 4: the platform's own losses stay failures, and are tried again.
        (failed("Evicted", LOW), "PodLost", LOW.strip(": ")),
        (failed("Evicted", "The node had condition: [DiskPressure]. "), "PodLost", "DiskPressure"),
        (failed("NodeLost", "Node n1 is unresponsive"), "PodLost", "unresponsive"),
        (failed("Preempting", "Preempted in order to admit"), "PodLost", "Preempted"),
        (failed("Terminated", "in response to node shutdown"), "PodLost", "shutdown"),
        (
            failed("UnexpectedAdmissionError", "exceeded its local ephemeral storage"),
            "PodLost",
            "ephemeral",
        ),
        (
            pod(
                phase="Running",
                conditions=condition("DisruptionTarget", "True", "EvictionByEvictionAPI"),
            ),
            "PodLost",
            "EvictionByEvictionAPI",
        ),
        (pod({"deletionTimestamp": "now"}, phase="Running"), "PodLost", "being deleted"),
        (failed("DeadlineExceeded"), "SandboxExpired", "activeDeadlineSeconds"),
        (
            pod(
                phase="Running",
                containerStatuses=[{**container(running={})[0], "restartCount": 1}],
            ),
            "PodLost",
            "1 times: its files",
        ),
        (ended(143, "Error"), "PodStart", "exit code 143"),
        (ended(0, phase="Succeeded"), "PodLost", "stream was lost"),
        # A container's termination message is a file that the policy may write.
        (
            ended(0, phase="Succeeded", message="Pod ephemeral local storage usage OOMKilled"),
            "PodLost",
            "stream was lost",
        ),
    ],
)
def test_how_a_pod_was_lost(subject: Pod, kind: str, why: str) -> None:
    error = diagnose.loss_error(subject)
    assert error is not None
    assert type(error) is getattr(diagnose, f"{kind}Error")
    assert why in error.why
    assert error.fix
    # The sandbox reserves all that it may use: what it took beyond that was its own doing.
    assert isinstance(error, SandboxDestroyedError) is (kind in {"OutOfMemory", "OutOfDisk"})
    assert error.retryable is not isinstance(error, SandboxDestroyedError)


def refused(code: int, message: str) -> SweRolloutError:
    body = json.dumps({"kind": "Status", "message": message, "code": code})
    return diagnose.creation_error(api_error("create pod p", code, body.encode()), "p")


@pytest.mark.parametrize(
    ("code", "message", "kind", "retryable"),
    [
        (403, "exceeded quota: q, requested: pods=1", diagnose.QuotaExceededError, True),
        (403, 'User "u" cannot create resource "pods" in API group ""', PrerequisiteError, None),
        (403, 'violates PodSecurity "restricted:latest"', PrerequisiteError, None),
        (403, "namespace rl because it is being terminated", PrerequisiteError, None),
        (403, "must be less than or equal to memory limit", diagnose.PodRefusedError, False),
        (422, "must be less than or equal to memory limit", diagnose.PodRefusedError, False),
        (500, "etcdserver: request timed out", ApiError, True),
    ],
)
def test_a_refusal_to_create_a_pod(
    code: int, message: str, kind: type[SweRolloutError], *, retryable: bool | None
) -> None:
    error = refused(code, f'pods "p" is forbidden: {message}')
    assert type(error) is kind
    assert message in error.why
    assert getattr(error, "retryable", None) is retryable
    assert ("enforce=baseline" in error.fix) is ("PodSecurity" in message)


def test_events_complete_a_reason_without_repeating_it() -> None:
    error = SandboxError("it failed", why="ErrImagePull: name unknown")
    events = [
        KubernetesEvent(type="Normal", reason="Scheduled", message="assigned to node"),
        KubernetesEvent(type="Warning", reason="Failed", message="Error: ErrImagePull"),
        KubernetesEvent(type="Warning", reason="NodeNotReady", message="the node is not ready"),
    ]
    assert diagnose.with_events(error, events).why == (
        "ErrImagePull: name unknown; NodeNotReady: the node is not ready"
    )


def test_the_end_of_the_agents_container_is_no_loss_of_its_graders() -> None:
    beside = {"name": "sandbox-grader", "state": {"running": {}}, "ready": True}
    # As the kubelet sends them, by name: which is first says nothing.
    over = pod(
        phase="Running",
        containerStatuses=[beside, *container(terminated={"exitCode": 0})],
    )
    assert diagnose.loss_error(over) is not None
    assert diagnose.loss_error(over, "sandbox-grader") is None
    assert diagnose.is_ready(over, "sandbox-grader")
    assert not diagnose.is_ready(over)
