"""From a pod's status to a typed error with why and fix."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from swe_rollout.cluster.api_error import api_error
from swe_rollout.cluster.objects import KubernetesEvent, Pod
from swe_rollout.errors import (
    ClusterError,
    PrerequisiteError,
    SandboxDestroyedError,
    SandboxError,
)
from swe_rollout.sandbox.pods import diagnose


def pod(**status: Any) -> Pod:
    body = {"metadata": {"name": "p", "uid": "u", "namespace": "n"}, "status": status}
    return msgspec.json.decode(json.dumps(body), type=Pod)


def container(**state: Any) -> list[dict[str, Any]]:
    return [{"name": "sandbox", "state": state, "ready": "running" in state, "restartCount": 0}]


def waiting(reason: str, message: str = "") -> Pod:
    state = {"waiting": {"reason": reason, "message": message}}
    return pod(phase="Pending", containerStatuses=container(**state))


def problem_of(subject: Pod) -> diagnose.StartProblem:
    problem = diagnose.start_problem(subject)
    assert problem is not None
    return problem


def loss_of(subject: Pod) -> SandboxError:
    error = diagnose.loss_error(subject)
    assert error is not None
    return error


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


def test_a_pod_is_ready_when_its_container_runs_and_says_so() -> None:
    assert diagnose.is_ready(pod(containerStatuses=container(running={"startedAt": "now"})))
    assert not diagnose.is_ready(waiting("ContainerCreating"))
    assert not diagnose.is_ready(pod())


@pytest.mark.parametrize("reason", ["ErrImageNeverPull", "InvalidImageName"])
def test_an_image_that_can_never_be_pulled_is_raised_at_once(reason: str) -> None:
    problem = problem_of(waiting(reason, "no such thing"))
    assert isinstance(problem.error, diagnose.ImageUnavailableError)
    assert problem.settle_s == 0
    assert not problem.error.retryable
    assert "no such thing" in problem.error.why
    assert problem.error.fix


@pytest.mark.parametrize(
    "message",
    [
        'failed to resolve reference "docker.io/a/b:1": docker.io/a/b:1: not found',
        "pull access denied, repository does not exist or may require authorization",
        "unexpected status from HEAD request: 403 Forbidden",
    ],
)
def test_a_registry_refusal_is_raised_soon_and_not_retried(message: str) -> None:
    problem = problem_of(waiting("ErrImagePull", message))
    assert isinstance(problem.error, diagnose.ImageUnavailableError)
    assert problem.settle_s < 5
    assert not problem.error.retryable


def test_a_registry_that_does_not_respond_is_retried() -> None:
    problem = problem_of(waiting("ImagePullBackOff", "dial tcp: i/o timeout"))
    assert isinstance(problem.error, diagnose.ImageUnavailableError)
    assert problem.settle_s > 10
    assert problem.error.retryable


def test_an_unschedulable_pod_reports_the_schedulers_message() -> None:
    message = "0/3 nodes are available: 3 Insufficient cpu."
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    problem = problem_of(pod(phase="Pending", conditions=[{**condition, "message": message}]))
    assert isinstance(problem.error, diagnose.UnschedulableError)
    assert problem.error.why == message
    assert problem.error.retryable


def test_a_node_that_is_being_added_is_worth_waiting_for() -> None:
    assert diagnose.is_scaling_up([KubernetesEvent(type="Normal", reason="TriggeredScaleUp")])
    assert not diagnose.is_scaling_up([KubernetesEvent(type="Warning", reason="FailedScheduling")])


def test_a_container_that_can_not_start_reports_why() -> None:
    message = 'exec: "/bin/sh": stat /bin/sh: no such file or directory'
    problem = problem_of(waiting("CreateContainerError", message))
    assert isinstance(problem.error, diagnose.PodStartError)
    assert message in problem.error.why


def test_a_container_killed_for_memory_is_out_of_memory() -> None:
    ended = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    subject = pod(phase="Failed", containerStatuses=container(**ended))
    error = loss_of(subject)
    assert isinstance(error, diagnose.OutOfMemoryError)
    assert isinstance(error, SandboxDestroyedError), "the sandbox reserves all it may use"
    assert "memory" in error.fix


def test_a_container_killed_for_memory_before_any_command_is_no_policys_doing() -> None:
    """Issue 16, point 4."""
    ended = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    problem = problem_of(pod(phase="Failed", containerStatuses=container(**ended)))
    assert isinstance(problem.error, diagnose.PodStartError)


@pytest.mark.parametrize(
    "message",
    [
        "Pod ephemeral local storage usage exceeds the total limit of containers 4Gi. ",
        'Container sandbox exceeded its local ephemeral storage limit "4Gi". ',
        'Usage of EmptyDir volume "work" exceeds the limit "1Gi". ',
    ],
)
def test_a_pod_evicted_for_its_own_disk_ended_itself(message: str) -> None:
    """Issue 16, point 4: the limit is the pod's; the node had room."""
    target = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
    error = loss_of(pod(phase="Failed", reason="Evicted", message=message, conditions=[target]))
    assert isinstance(error, diagnose.OutOfDiskError)
    assert message.strip() in error.why


@pytest.mark.parametrize(
    "status",
    [
        {
            "reason": "Evicted",
            "message": "The node was low on resource: ephemeral-storage. Threshold quantity: 1Gi, "
            "available: 2Ki. Container sandbox was using 9Gi, request is 4Gi, has larger "
            "consumption of ephemeral-storage. ",
        },
        {"reason": "Evicted", "message": "The node had condition: [DiskPressure]. "},
        {"reason": "NodeLost", "message": "Node n1 which was running pod p is unresponsive"},
        {"reason": "Preempting", "message": "Preempted in order to admit critical pod"},
        {"reason": "Terminated", "message": "Pod was terminated in response to node shutdown"},
        {"reason": "UnexpectedAdmissionError", "message": "exceeded its local ephemeral storage"},
    ],
    ids=lambda status: str(status["reason"]),
)
def test_what_the_node_does_is_no_evidence(status: dict[str, str]) -> None:
    """Issue 16, point 4: the platform's own losses stay failures, and are tried again."""
    error = loss_of(pod(phase="Failed", **status))
    assert isinstance(error, diagnose.PodLostError)
    assert not isinstance(error, SandboxDestroyedError)
    assert error.retryable


def test_a_message_that_a_command_wrote_is_no_evidence() -> None:
    """A container's termination message is a file that the policy may write."""
    text = "Pod ephemeral local storage usage exceeds OOMKilled"
    ended = {"terminated": {"exitCode": 0, "reason": "Completed", "message": text}}
    error = loss_of(pod(phase="Succeeded", containerStatuses=container(**ended)))
    assert not isinstance(error, SandboxDestroyedError)


def test_an_evicted_pod_is_lost_and_reports_what_ran_out() -> None:
    message = "The node was low on resource: ephemeral-storage."
    error = loss_of(pod(phase="Failed", reason="Evicted", message=message))
    assert isinstance(error, diagnose.PodLostError)
    assert message in error.why
    assert error.retryable


def test_a_pod_that_is_drained_or_deleted_is_lost() -> None:
    target = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    drained = loss_of(pod(phase="Running", conditions=[target]))
    assert isinstance(drained, diagnose.PodLostError)
    assert "EvictionByEvictionAPI" in drained.why
    body = {"metadata": {"name": "p", "deletionTimestamp": "now"}, "status": {"phase": "Running"}}
    deleted = loss_of(msgspec.json.decode(json.dumps(body), type=Pod))
    assert isinstance(deleted, diagnose.PodLostError)


def test_a_pod_at_the_end_of_its_lifetime_has_expired() -> None:
    error = loss_of(pod(phase="Failed", reason="DeadlineExceeded"))
    assert isinstance(error, diagnose.SandboxExpiredError)


def test_a_restarted_container_is_not_the_same_sandbox() -> None:
    status = {**container(running={})[0], "restartCount": 1}
    error = loss_of(pod(phase="Running", containerStatuses=[status]))
    assert isinstance(error, diagnose.PodLostError)
    assert "restarted" in error.what


def test_a_container_that_ended_by_itself_is_reported_with_its_exit_code() -> None:
    ended = {"terminated": {"exitCode": 143, "reason": "Error"}}
    error = loss_of(pod(phase="Failed", containerStatuses=container(**ended)))
    assert "143" in error.why


def test_a_healthy_pod_has_no_loss() -> None:
    assert (
        diagnose.loss_error(pod(phase="Running", containerStatuses=container(running={}))) is None
    )


def refused(code: int, message: str, reason: str = "") -> ClusterError | Exception:
    body = json.dumps({"kind": "Status", "reason": reason, "message": message, "code": code})
    return diagnose.creation_error(api_error("create pod p", code, body.encode()), "p")


def test_a_full_quota_is_reported_as_one_and_may_be_retried() -> None:
    message = 'pods "p" is forbidden: exceeded quota: q, requested: pods=1, used: pods=5'
    error = refused(403, message, "Forbidden")
    assert isinstance(error, diagnose.QuotaExceededError)
    assert error.retryable
    assert error.why == message


def test_a_refusal_that_every_episode_would_meet_stops_the_job() -> None:
    rbac = 'pods is forbidden: User "u" cannot create resource "pods" in API group ""'
    assert isinstance(refused(403, rbac, "Forbidden"), PrerequisiteError)
    level = 'pods "p" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot'
    error = refused(403, level, "Forbidden")
    assert isinstance(error, PrerequisiteError)
    assert "enforce=baseline" in error.fix


def test_a_pod_that_breaks_a_rule_is_not_sent_again() -> None:
    for code in (403, 422):
        error = refused(code, "must be less than or equal to memory limit")
        assert isinstance(error, diagnose.PodRefusedError)
        assert not error.retryable


def test_a_failing_server_stays_what_it_is() -> None:
    error = refused(500, "etcdserver: request timed out")
    assert isinstance(error, ClusterError)
    assert error.retryable


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


def test_a_pod_whose_process_1_exited_with_0_is_lost_and_not_broken() -> None:
    ended = pod(phase="Succeeded", containerStatuses=container(terminated={"exitCode": 0}))
    error = loss_of(ended)
    assert isinstance(error, diagnose.PodLostError)
    assert error.retryable
    assert "stream was lost" in error.why


def test_an_unschedulable_pod_persists_longer_before_a_warning() -> None:
    condition = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}
    crowded = problem_of(pod(phase="Pending", conditions=[condition]))
    pulled = problem_of(waiting("ErrImagePull", "i/o timeout"))
    assert pulled.warn_s < crowded.warn_s < crowded.settle_s
    assert pulled.warn_s < pulled.settle_s
