"""The operator's decisions about a job, as tables: pure, no cluster.

Aspects: what is created and in which order; suspend, resume, queue, new worker pods, deadline; the
end, its clean-up and its time to live; deletion step by step; rounds that have nothing to do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from controller.builders import (
    IMAGE,
    NOW,
    at,
    job,
    observed,
    pod,
    progress_of,
    with_status,
    worker_job,
)
from rollout_operator import actions
from rollout_operator.observed import Observed, ObservedJob
from rollout_operator.reconcile import (
    ACTIVE_INTERVAL_S,
    DRAIN_S,
    OVER_S,
    STUCK_S,
    Plan,
    expects_no_sandboxes,
    reconcile,
)
from swe_rollout.spec.status import Condition, ConditionType

SUSPENDED: dict[str, object] = {"suspend": True}
DAY_S = 86_400.0
GOING = worker_job(job(), deleted=True)
STOPPED = job(SUSPENDED)
DELETED = job(deleted_at=NOW)
KEPT_60_S, KEPT_1_H = (job({"ttlSecondsAfterFinished": each}) for each in (60, 3600))
QUEUED: dict[str, object] = {"workers": {"count": 2, "labels": {"kueue.x-k8s.io/queue-name": "q"}}}


SPENT = observed(
    pod(0, progress=progress_of(9, masked=9)),
    pod(1, progress=progress_of(9, masked=9)),
    workers=worker_job(job()),
)


def plan(seen: ObservedJob, found: Observed) -> Plan:
    return reconcile(seen, found, NOW, image=IMAGE)


def ended(seen: ObservedJob, *, ago_s: float = 0.0) -> ObservedJob:
    """Return the job, complete for `ago_s` seconds."""
    moment = at(-ago_s).strftime("%Y-%m-%dT%H:%M:%SZ")
    complete = Condition(
        type=ConditionType.COMPLETE, status="True", reason="x", last_transition_time=moment
    )
    return with_status(seen, conditions=(complete,), completion_time=moment)


def out_of_budget(seen: ObservedJob) -> ObservedJob:
    """Return the job as it is once its failure was written down."""
    return with_status(seen, conditions=plan(seen, SPENT).status.conditions)


def running(spec: dict[str, object] | None = None, **found: object) -> Observed:
    """Observe two running workers of a job with this spec."""
    state = observed(
        pod(0, progress=progress_of(1)),
        pod(1, progress=progress_of(2)),
        workers=worker_job(job(spec)),
    )
    return replace(state, **found)  # type: ignore[arg-type]


def drains(for_s: float) -> Observed:
    """Observe workers that have been seen to drain for so long."""
    workers = worker_job(job(), suspended=True)
    pods = pod(0, deletion_requested_at=NOW)
    return observed(pods, workers=workers, sandboxes_left=True, for_s=for_s)


def rebooted(for_s: float, **fields: object) -> Observed:
    """Observe one worker at work, and one whose container ended so long ago in a pod that runs."""
    over: dict[str, object] = {"terminated": {"exitCode": 137}}
    pods = pod(0, progress=progress_of(1)), pod(1, container=over, **fields)  # type: ignore[arg-type]
    return observed(*pods, workers=worker_job(job()), for_s=for_s)


draining = drains(0.0)
CASES: Final[dict[str, tuple[ObservedJob, Observed, str]]] = {
    "a new job": (job(), Observed(), "ApplyPrerequisites CreateWorkers"),
    "a job at work": (job(), running(), ""),
    "a worker begins again in its pod": (job(), rebooted(STUCK_S), ""),
    "a worker never begins again": (job(), rebooted(STUCK_S + 1), "DeleteWorkerPod"),
    "a worker has ended": (job(), rebooted(STUCK_S + 1, phase="Failed"), ""),
    "a worker is deleted that never begins again": (
        job(),
        rebooted(STUCK_S + 1, deletion_requested_at=NOW),
        "",
    ),
    "a worker waits before it begins again": (
        job(),
        observed(
            pod(0, container={"waiting": {}}, last={"terminated": {"exitCode": 137}}),
            pod(1),
            workers=worker_job(job()),
            for_s=600.0,
        ),
        "",
    ),
    "prerequisites applied long ago": (
        job(),
        running(prerequisites_applied_s=700.0),
        "ApplyPrerequisites",
    ),
    "an invalid spec": (job({"samples": 0}), Observed(), ""),
    "an invalid change of a job at work": (job({"samples": 0}), running(), ""),
    "suspended from the start": (STOPPED, Observed(), ""),
    "suspend requested": (STOPPED, running(sandboxes_left=True), "AdjustWorkers"),
    "suspending, workers drain": (STOPPED, draining, ""),
    "suspending, workers drain since a day, by a clock that has jumped": (
        STOPPED,
        replace(draining, pods=(pod(0, deletion_requested_at=at(-DAY_S)),)),
        "",
    ),
    "suspending, workers take too long": (STOPPED, drains(DRAIN_S + 1), "DeleteSandboxes"),
    "suspending, workers are gone": (STOPPED, replace(draining, pods=()), "DeleteSandboxes"),
    "suspended": (STOPPED, replace(draining, pods=(), sandboxes_left=False), ""),
    "resume requested": (
        job(),
        observed(workers=worker_job(job(), suspended=True)),
        "AdjustWorkers",
    ),
    "waiting in a queue": (
        job(QUEUED),
        observed(workers=worker_job(job(QUEUED), suspended=True)),
        "",
    ),
    "admitted by its queue": (job(QUEUED), running(QUEUED), ""),
    "queued, suspend requested": (job(QUEUED | SUSPENDED), running(QUEUED), "DeleteWorkers"),
    "new worker pods needed": (job({"workers": {"count": 3}}), running(), "DeleteWorkers"),
    "new worker pods needed, the old ones drain": (
        job({"workers": {"count": 3}}),
        running(workers=GOING),
        "",
    ),
    "a later deadline": (job({"activeDeadlineSeconds": 60.5}), running(), "AdjustWorkers"),
    "workers done, not yet counted": (
        job(),
        observed(workers=worker_job(job(), conditions={"Complete": ""}, completed_at=NOW)),
        "",
    ),
    "over, sandboxes left": (ended(job()), observed(sandboxes_left=True), "DeleteSandboxes"),
    "over, kept for a while": (ended(KEPT_60_S, ago_s=59), observed(sandboxes_left=False), ""),
    "over, its time to live too": (
        ended(KEPT_60_S, ago_s=60),
        observed(sandboxes_left=False, for_s=60),
        "DeleteJob",
    ),
    "over since a day, by a clock that has jumped": (
        ended(KEPT_1_H, ago_s=DAY_S),
        observed(sandboxes_left=False, for_s=OVER_S - 1),
        "",
    ),
    "over since a day, and the operator began anew": (
        ended(KEPT_1_H, ago_s=DAY_S),
        observed(sandboxes_left=False, for_s=OVER_S),
        "DeleteJob",
    ),
    "over tomorrow, by a clock that was put right": (
        ended(KEPT_1_H, ago_s=-DAY_S),
        observed(sandboxes_left=False, for_s=3600),
        "DeleteJob",
    ),
    "budget spent, not yet written down": (job(), SPENT, ""),
    "budget spent": (out_of_budget(job()), SPENT, "DeleteWorkers"),
    "budget spent, workers drain": (out_of_budget(job()), replace(SPENT, workers=GOING), ""),
    "over, kept for good": (ended(job(), ago_s=1e6), observed(sandboxes_left=False), ""),
    "deleted while at work": (DELETED, running(sandboxes_left=True), "DeleteWorkers"),
    "deleted, workers drain": (DELETED, replace(draining, workers=GOING), ""),
    "deleted, workers take too long": (
        DELETED,
        replace(drains(DRAIN_S + 1), workers=GOING),
        "DeleteSandboxes",
    ),
    "deleted, sandboxes without workers": (
        DELETED,
        observed(sandboxes_left=True),
        "DeleteSandboxes",
    ),
    "deleted, nothing left": (DELETED, observed(sandboxes_left=False), ""),
    "deleted with an invalid spec": (
        job({"samples": 0}, deleted_at=NOW),
        running(sandboxes_left=False),
        "DeleteWorkers",
    ),
}
"""By situation: the job, what is seen of it, and the names of the actions."""


def test_the_pod_that_is_deleted_is_the_stuck_one_and_the_next_round_is_soon() -> None:
    found = rebooted(STUCK_S + 1)
    (action,) = plan(job(), found).actions
    assert isinstance(action, actions.DeleteWorkerPod)
    assert action.uid == found.pods[1].metadata.uid
    assert plan(job(), rebooted(0.0)).next_round_s == ACTIVE_INTERVAL_S


@pytest.mark.parametrize("situation", CASES)
def test_the_situation_decides_what_is_done(situation: str) -> None:
    seen, found, does = CASES[situation]
    assert " ".join(type(each).__name__ for each in plan(seen, found).actions) == does


def test_a_round_without_changes_acts_and_writes_nothing() -> None:
    found = running()
    first = plan(job(), found)

    second = plan(replace(job(), status=first.status), found)

    assert (second.actions, second.events) == ((), ())
    assert second.status == first.status


def test_suspending_and_resuming_adjust_the_worker_job_and_keep_its_deadline() -> None:
    bounded: dict[str, object] = {"activeDeadlineSeconds": 90}
    at_work = worker_job(job(bounded), deadline_seconds=90)
    suspended = worker_job(job(bounded), suspended=True, deadline_seconds=90)

    stop = plan(job(bounded | SUSPENDED), observed(workers=at_work, sandboxes_left=False))
    resume = plan(job(bounded), observed(workers=suspended))

    uid = at_work.metadata.uid
    assert actions.AdjustWorkers(uid, suspend=True, deadline_seconds=90) in stop.actions
    assert actions.AdjustWorkers(uid, suspend=False, deadline_seconds=90) in resume.actions


def test_a_queue_alone_starts_the_workers_of_its_jobs() -> None:
    (create,) = (a for a in plan(job(QUEUED), Observed()).actions if hasattr(a, "manifest"))
    spec = create.manifest["spec"]

    assert isinstance(spec, dict)
    assert spec["suspend"] is True


def test_sandboxes_are_checked_where_there_should_be_none() -> None:
    assert not expects_no_sandboxes(job())
    assert expects_no_sandboxes(STOPPED)
    assert expects_no_sandboxes(DELETED)
    assert expects_no_sandboxes(ended(job()))


def test_a_finished_job_is_left_alone_until_its_time_to_live_is_over() -> None:
    clean = observed(sandboxes_left=False)
    seen = observed(sandboxes_left=False, for_s=20)

    assert plan(ended(job()), clean).next_round_s is None
    assert plan(ended(KEPT_60_S, ago_s=20), seen).next_round_s == 40
    assert plan(ended(job()), observed()).next_round_s == 2


def test_a_changing_job_is_reconciled_often_and_a_steady_one_rarely() -> None:
    assert plan(job(), running()).next_round_s == 30
    assert plan(job(), observed(pod(0), workers=worker_job(job()))).next_round_s == 2
    assert plan(STOPPED, draining).next_round_s == 2
    assert plan(STOPPED, observed(sandboxes_left=False)).next_round_s == 30


def test_new_workers_have_the_shards_of_those_before_them() -> None:
    grown = job({"parallelism": 1000, "workers": {}})

    def completions(of: ObservedJob) -> object:
        (made,) = [
            each for each in plan(of, Observed()).actions if isinstance(each, actions.CreateWorkers)
        ]
        spec = made.manifest["spec"]
        assert isinstance(spec, dict)
        return spec["completions"]

    assert completions(grown) == 4
    assert completions(with_status(grown, workers=2)) == 2
