"""The status of a job: counts that never decrease, conditions, state, events. Pure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.builders import NOW, at, job, observed, pod, progress_of, with_status, worker_job
from rollout_operator.actions import EventType
from rollout_operator.diagnose import SILENCE_S
from rollout_operator.observed import Observed, ObservedJob, WorkerJob, sights_of
from rollout_operator.status import FINAL_PROGRESS_S, events_of, next_status
from swe_rollout.spec.status import (
    Condition,
    ConditionType,
    RolloutJobStatus,
    State,
    UnmetCondition,
    WorkerProgress,
)

DOWN = UnmetCondition(
    condition=ConditionType.MODEL_READY, reason="Unreachable", message="the engine is down"
)
AT_WORK = worker_job(job())
COMPLETE = worker_job(job(), conditions={"Complete": ""}, completed_at=NOW)
DONE = progress_of(10, finished=True)


def reports(*progress: WorkerProgress | None, workers: WorkerJob = AT_WORK) -> Observed:
    """Observe a pod for each of these, the first one of index 0."""
    pods = (pod(index, progress=each) for index, each in enumerate(progress))
    return observed(*pods, workers=workers)


def status(seen: ObservedJob, found: Observed, *, after_s: float = 0) -> RolloutJobStatus:
    """Return the status by what has been seen for so long."""
    sights = sights_of(seen, found.workers, found.pods, is_over=False)
    later = replace(found, seen_for_s=dict.fromkeys(sights, after_s))
    return next_status(seen, later, at(after_s))


def condition(of: RolloutJobStatus, kind: ConditionType) -> Condition:
    """Return the condition of this kind; one with empty texts if there is none."""
    none = Condition.model_construct(type=kind, status="", reason="", message="")
    return next((each for each in of.conditions if each.type is kind), none)


def reason(of: RolloutJobStatus, kind: ConditionType) -> tuple[str, str]:
    found = condition(of, kind)
    return found.status, found.reason


def test_counts_are_the_sum_over_all_workers() -> None:
    first = progress_of(4, resolved=2, masked=1, running=3, awaiting_cache=2, reward_sum=1.5)
    second = progress_of(6, resolved=1, running=2, reward_sum=0.5)

    said = status(job(), reports(first, second))

    counts = said.episodes
    assert (counts.total, counts.committed, counts.running) == (20, 10, 5)
    assert counts.awaiting_cache == 2
    assert said.workers == 2
    assert (counts.resolved, counts.unresolved, counts.masked) == (3, 6, 1)
    assert said.stop_reasons == {"submitted": 9}
    assert said.failures == {"PodLostError": 1}
    assert (said.progress, said.resolved, said.mean_reward) == ("10/20", "3/9", "0.22")
    assert said.state is State.RUNNING


def test_the_number_of_workers_is_that_of_the_worker_job() -> None:
    grown = job({"parallelism": 1000, "workers": {}})
    began_with_one = worker_job(job({"workers": {"count": 1}}))

    said = status(grown, reports(progress_of(4), workers=began_with_one))

    assert said.workers == 1
    assert status(replace(grown, status=said), Observed()).workers == 1


def test_counts_stay_as_a_whole_while_the_progress_of_a_worker_is_unknown() -> None:
    before = status(job(), reports(progress_of(5, resolved=5), progress_of(5)))

    # A new operator, and the pod of index 0 was replaced by one without progress.
    alone = reports(None, progress_of(7, running=2))
    said = status(replace(job(), status=before), alone)

    assert (said.episodes.committed, said.episodes.resolved, said.episodes.total) == (10, 5, 20)
    assert said.episodes.running == 2
    caught_up = reports(progress_of(5, resolved=5), progress_of(7))
    assert status(replace(job(), status=said), caught_up).episodes.committed == 12


def test_only_pods_that_live_have_running_episodes() -> None:
    deleted = pod(0, progress=progress_of(1, running=4), deletion_requested_at=NOW)

    assert status(job(), observed(deleted, workers=AT_WORK)).episodes.running == 0


def test_a_mean_is_written_only_of_what_was_graded() -> None:
    ungraded = job({"grading": {"enabled": False}})

    assert status(job(), reports(progress_of(2, masked=2))).mean_reward == ""
    assert status(ungraded, reports(progress_of(2))).mean_reward == ""


def test_an_invalid_spec_is_not_accepted_and_every_problem_has_its_fix() -> None:
    wrong = job({"samples": 0, "limits": {"turn": 3}})

    said = status(wrong, Observed())

    found = condition(said, ConditionType.ACCEPTED)
    assert (found.status, found.reason) == ("False", "InvalidSpec")
    assert "spec.samples: must be at least 1" in found.message
    assert "did you mean `turns`?" in found.message
    assert said.state is State.FAILED


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ConditionType.STORAGE_READY, "the bucket is unreachable"),
        (ConditionType.MODEL_READY, "the engine is down"),
        (ConditionType.SANDBOXES_READY, "the image does not exist; correct its name"),
    ],
)
def test_an_unmet_condition_of_a_worker_is_a_condition_of_the_job_until_it_is_met(
    kind: ConditionType, text: str
) -> None:
    unmet = UnmetCondition(condition=kind, reason="Why", message=text)

    bad = status(job(), reports(progress_of(0), progress_of(1, unmet=(unmet,))))
    well = reports(progress_of(0), progress_of(2))
    good = status(replace(job(), status=bad), well, after_s=9)

    assert (*reason(bad, kind), condition(bad, kind).message) == ("False", "Why", text)
    assert reason(good, kind) == ("True", "Ready")
    assert condition(good, kind).last_transition_time == "2026-11-20T12:00:09Z"


def test_the_final_progress_of_a_short_job_is_reported_before_it_is_complete() -> None:
    last = progress_of(10, masked=10, finished=True, unmet=(DOWN,))
    seen = job({"workers": {"count": 1}, "failureBudget": {"maxMaskedFraction": 1}})
    workers = worker_job(seen, conditions={"Complete": ""}, completed_at=NOW)

    said = status(seen, observed(pod(0, progress=last, phase="Succeeded"), workers=workers))

    assert reason(said, ConditionType.MODEL_READY) == ("False", "Unreachable")
    assert said.state is State.COMPLETE


def test_without_progress_no_service_has_a_condition() -> None:
    said = status(job(), reports(None))

    assert reason(said, ConditionType.MODEL_READY) == ("", "")
    assert said.state is State.RUNNING


def waiting(why: str, message: str = "m") -> dict[str, object]:
    return {"waiting": {"reason": why, "message": message}}


def ended(code: int, why: str = "Error", message: str = "") -> dict[str, object]:
    return {"terminated": {"exitCode": code, "reason": why, "message": message}}


RESTARTING = waiting("CrashLoopBackOff")
RUNNING: dict[str, object] = {"running": {"startedAt": "2026-11-20T12:00:00Z"}}
NO_NODE = [
    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
]


@pytest.mark.parametrize(
    ("worker", "refusal", "expected"),
    [
        (pod(container=waiting("ImagePullBackOff"), phase="Pending"), "", "WorkerImageUnavailable"),
        (
            pod(container=waiting("ErrImageNeverPull"), phase="Pending"),
            "",
            "WorkerImageUnavailable",
        ),
        (pod(container=waiting("CreateContainerConfigError")), "", "WorkerStartFailed"),
        (pod(container=waiting("ContainerCreating"), phase="Pending"), "", ""),
        (pod(conditions=NO_NODE, phase="Pending"), "", "WorkerUnschedulable"),
        (pod(container=ended(137, "OOMKilled"), phase="Failed"), "", "WorkerOutOfMemory"),
        (pod(container=RESTARTING, last=ended(137, "OOMKilled")), "", "WorkerOutOfMemory"),
        (pod(container=RESTARTING, last=ended(137)), "", "WorkerCrashed"),
        (pod(container=RUNNING, last=ended(137, "OOMKilled")), "", ""),
        (
            pod(container=ended(71), last=ended(137, "OOMKilled"), phase="Failed"),
            "",
            "WorkerOutOfMemory",
        ),
        (pod(container=ended(71), last=ended(137), phase="Failed"), "", "WorkerCrashed"),
        (pod(container=ended(128, "StartError"), phase="Failed"), "", "WorkerCrashed"),
        (pod(container=ended(143), phase="Failed"), "", ""),
        (pod(container=ended(0), phase="Succeeded"), "", ""),
        (None, "pods is forbidden: exceeded quota: small", "WorkerQuotaExceeded"),
        (None, "admission webhook says no", "WorkerRefused"),
    ],
)
def test_workers_that_do_not_start_or_keep_running_have_a_typed_reason(
    worker: object, refusal: str, expected: str
) -> None:
    pods = (worker,) if worker is not None else ()
    found = Observed(workers=AT_WORK, pods=pods, refusal=refusal)  # type: ignore[arg-type]

    said = condition(status(job(), found, after_s=6), ConditionType.SANDBOXES_READY)

    assert said.reason == expected
    assert not expected or "spec.workers" in said.message or "kubectl logs" in said.message


def test_a_job_level_failure_of_a_worker_fails_the_job_with_its_message() -> None:
    words = "the failure budget is spent: 9 of 10 episodes were masked. fix the cause"
    dead = pod(container=ended(78, message=words + "\n"), phase="Failed")
    target = worker_job(job(), conditions={"FailureTarget": "PodFailurePolicy"})

    said = status(job(), observed(dead, workers=target))
    early = status(job(), observed(workers=target))

    assert reason(said, ConditionType.FAILED) == ("True", "WorkerFailed")
    assert condition(said, ConditionType.FAILED).message == words
    assert (said.state, said.completion_time) == (State.FAILED, "2026-11-20T12:00:00Z")
    assert reason(early, ConditionType.FAILED) == ("", ""), "not before the reason is known"


def test_deadline_and_lost_workers_are_failures_with_a_fix() -> None:
    late = worker_job(job(), conditions={"Failed": "DeadlineExceeded"})
    lost = worker_job(job(), conditions={"Failed": "FailedIndexes"})
    killed = pod(container=ended(137, "OOMKilled"), phase="Failed")

    deadline = condition(
        status(job({"activeDeadlineSeconds": 90}), observed(workers=late)), ConditionType.FAILED
    )
    memory = condition(status(job(), observed(killed, workers=lost)), ConditionType.FAILED)

    assert deadline.reason == "DeadlineExceeded"
    assert "spec.activeDeadlineSeconds is 90" in deadline.message
    assert memory.reason == "WorkersLost"
    assert "raise spec.workers.resources.memory" in memory.message


def test_a_clock_that_jumps_does_not_end_the_wait_for_the_final_progress() -> None:
    """It would make a failure of a job whose episodes are all committed."""
    workers = worker_job(job(), conditions={"Complete": ""}, completed_at=at(-86_400))
    early = reports(progress_of(9), workers=workers)

    assert reason(status(job(), early), ConditionType.FAILED) == ("", "")


def test_a_job_is_complete_when_the_final_progress_of_all_workers_is_counted() -> None:
    early = reports(DONE, progress_of(9), workers=COMPLETE)
    counted = reports(DONE, DONE, workers=COMPLETE)

    assert reason(status(job(), early), ConditionType.COMPLETE) == ("", "")
    late = status(job(), early, after_s=FINAL_PROGRESS_S + 1)
    assert reason(late, ConditionType.FAILED) == ("True", "WorkersEndedEarly")
    assert "1 of 2 workers" in late.conditions[-1].message
    said = status(job(), counted)
    assert reason(said, ConditionType.COMPLETE) == ("True", "AllCommitted")
    assert (said.state, said.completion_time) == (State.COMPLETE, "2026-11-20T12:00:00Z")


def spent(*shares: WorkerProgress, spec: dict[str, object] | None = None) -> bool:
    """Whether a job fails whose workers report this, and says how much was masked."""
    said = status(job(spec), reports(*shares, workers=worker_job(job(spec))))
    if said.state is not State.FAILED:
        return False
    assert reason(said, ConditionType.FAILED) == ("True", "BudgetSpent")
    assert f"{said.episodes.masked} of {said.episodes.committed} episodes" in (
        said.conditions[-1].message
    )
    return True


def test_the_failure_budget_counts_over_all_workers() -> None:
    def share(committed: int, masked: int = 0) -> WorkerProgress:
        return progress_of(committed, total=20, masked=masked, planned=40)

    # No worker alone is above a fifth of ten; both together are, or are not.
    assert spent(share(5, 2), share(5, 1))
    assert not spent(share(5, 1), share(5, 1))
    # One worker's share fails as a whole, but not the job.
    assert not spent(share(4, 4), share(18, 0))
    assert spent(share(5, 5), share(18, 0))
    # A worker that has reported nothing may have committed all of its share.
    assert not spent(share(5, 5))
    assert spent(share(6, 6))
    assert not spent(share(9, 9), share(9, 9), spec={"failureBudget": {"maxMaskedFraction": 1}})


def test_replaced_samples_are_counted_and_make_no_other_worker_s_share_smaller() -> None:
    one = progress_of(5, total=22, masked=5, planned=40, replaced=2)
    other = progress_of(6, total=21, masked=1, planned=40, replaced=1)
    said = status(job(spec={"failureBudget": {"maxMaskedFraction": 1}}), reports(one, other))
    assert (said.episodes.total, said.episodes.replaced) == (43, 3)
    # The share that is unknown has 20 samples: 5 of 25 are a fifth, and 6 of 26 are above it.
    assert not spent(one)
    assert spent(progress_of(6, total=22, masked=6, planned=40, replaced=2))


def test_a_job_that_is_created_again_is_not_stopped_for_what_was_masked_before() -> None:
    before = progress_of(9, total=20, masked=9, planned=40, masked_now=0)
    assert not spent(before, before)
    assert spent(before, before.model_copy(update={"masked_now": 1}))


def test_a_spent_budget_outlives_the_workers_and_the_operator() -> None:
    failing = progress_of(9, total=20, masked=9, planned=40)
    over = status(job(), reports(failing, failing))
    assert status(replace(job(), status=over), Observed(), after_s=60) == over


def test_a_job_that_masked_too_many_at_its_end_is_not_complete() -> None:
    share = progress_of(2, total=2, planned=4, finished=True)
    failed = progress_of(2, total=2, masked=1, planned=4, finished=True)
    said = status(job(), reports(share, failed, workers=COMPLETE))
    assert reason(said, ConditionType.FAILED) == ("True", "BudgetSpent")
    assert "1 of 4 episodes of all workers" in said.conditions[-1].message


@pytest.mark.threat(point=29)
def test_workers_that_only_exit_with_0_have_done_nothing() -> None:
    pods = (pod(index, phase="Succeeded", container=ended(0)) for index in (0, 1))
    found = observed(*pods, workers=COMPLETE)

    late = status(job(), found, after_s=FINAL_PROGRESS_S + 1)

    assert reason(late, ConditionType.FAILED) == ("True", "WorkersEndedEarly")
    assert "spec.workers.image must be an image of swe-rollout" in late.conditions[-1].message
    assert late.state is State.FAILED
    # The same when their pods were deleted before anybody looked.
    gone = status(job(), observed(workers=COMPLETE), after_s=60)
    assert gone.state is State.FAILED


def test_a_share_that_was_counted_before_its_pod_went_is_complete() -> None:
    before = status(job(), reports(DONE, progress_of(9)))

    # A new operator, after the node of the first worker has gone.
    alone = observed(pod(1, progress=DONE), workers=COMPLETE)
    said = status(replace(job(), status=before), alone, after_s=60)

    assert reason(said, ConditionType.COMPLETE) == ("True", "AllCommitted")


@pytest.mark.threat(point=29)
def test_a_worker_that_runs_and_says_nothing_is_a_condition() -> None:
    found = observed(pod(0, container=RUNNING), workers=AT_WORK)
    reported = observed(pod(0, container=RUNNING, progress=progress_of(0)), workers=AT_WORK)

    for seen, after_s, expected in (
        (found, SILENCE_S - 1, ("", "")),
        (found, SILENCE_S + 1, ("False", "WorkerSilent")),
        (reported, SILENCE_S + 1, ("True", "Ready")),
    ):
        said = status(job(), seen, after_s=after_s)
        assert reason(said, ConditionType.SANDBOXES_READY) == expected


def test_what_is_over_stays_over() -> None:
    over = status(job(), reports(DONE, DONE, workers=COMPLETE))

    said = status(replace(job({"suspend": True}), status=over), Observed(), after_s=60)

    assert said == over


def test_a_job_is_suspended_when_nothing_of_it_runs() -> None:
    stopped = worker_job(job(), suspended=True)
    draining = observed(pod(deletion_requested_at=NOW), workers=stopped, sandboxes_left=False)
    crowded = observed(workers=stopped, sandboxes_left=True)
    quiet = observed(workers=stopped, sandboxes_left=False)
    seen = job({"suspend": True})

    assert reason(status(seen, draining), ConditionType.SUSPENDED) == ("False", "Suspending")
    assert reason(status(seen, crowded), ConditionType.SUSPENDED) == ("False", "Suspending")
    said = status(seen, quiet)
    assert reason(said, ConditionType.SUSPENDED) == ("True", "SuspendedBySpec")
    assert said.state is State.SUSPENDED


def test_a_job_in_a_queue_names_it_and_is_pending() -> None:
    seen = job({"workers": {"labels": {"kueue.x-k8s.io/queue-name": "team-queue"}}})

    said = status(seen, observed(workers=worker_job(seen, suspended=True)))

    found = condition(said, ConditionType.SUSPENDED)
    assert (found.reason, said.state) == ("Queued", State.PENDING)
    assert "team-queue" in found.message


@pytest.mark.parametrize(
    ("policy", "shown"),
    [
        ({"scripted": {}}, "scripted"),
        ({"sglang": {"url": "http://engine.team:30000/v1"}}, "sglang:engine.team"),
        ({"transformers": {"model": "Qwen/Qwen3-0.6B"}}, "transformers:Qwen/Qwen3-0.6B"),
        ({"openai": {"model": "m", "url": "http://vllm.team:8000/v1"}}, "m@vllm.team"),
        ({"anthropic": {"model": "m"}}, "m@api.anthropic.com"),
        ({"chat": {"use": "mine:answer"}}, "mine:answer"),
    ],
)
def test_a_policy_is_shown_in_a_few_words(policy: dict[str, object], shown: str) -> None:
    assert status(job({"policy": policy}), Observed()).policy == shown


def test_every_change_of_a_condition_is_recorded_once() -> None:
    bad = status(job(), reports(progress_of(1, unmet=(DOWN,))))
    worse = progress_of(1, unmet=(DOWN.model_copy(update={"message": "still down"}),))
    still = status(replace(job(), status=bad), reports(worse), after_s=4)
    good = status(replace(job(), status=still), reports(progress_of(2)), after_s=8)

    def events(before: RolloutJobStatus, now: RolloutJobStatus) -> list[tuple[EventType, str, str]]:
        found = events_of(before.conditions, now.conditions, NOW)
        return [(each.type, each.reason, each.message) for each in found]

    assert events(RolloutJobStatus(), bad) == [
        (EventType.WARNING, "Unreachable", "the engine is down")
    ]
    assert events(bad, still) == []
    assert events(still, good) == [(EventType.NORMAL, "Ready", "ModelReady is true now")]


def test_a_new_generation_marks_all_conditions() -> None:
    said = status(job(generation=4), Observed())

    assert said.observed_generation == 4
    assert {each.observed_generation for each in said.conditions} == {4}


def test_a_status_of_another_version_is_replaced() -> None:
    seen = job(status={"state": "Levitating", "episodes": {"total": "many"}})

    assert seen.status == RolloutJobStatus()


def test_an_annotation_of_another_version_is_no_progress() -> None:
    unreadable = pod(progress=WorkerProgress())
    unreadable.metadata.annotations["swe-rollout.dev/progress"] = "{]"

    assert unreadable.progress is None
    assert status(with_status(job()), observed(unreadable)).progress == "0/0"
