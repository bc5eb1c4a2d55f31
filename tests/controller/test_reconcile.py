"""The operator's decisions about a job, as tables: pure, no cluster.

Aspects: what is created and in which order; suspend, resume, queue, new worker pods, deadline; the
end, its clean-up and its time to live; deletion step by step; rounds that have nothing to do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

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
QUEUED: dict[str, object] = {"workers": {"count": 2, "labels": {"kueue.x-k8s.io/queue-name": "q"}}}


SPENT = observed(
    pod(0, progress=progress_of(9, masked=9)),
    pod(1, progress=progress_of(9, masked=9)),
    workers=worker_job(job()),
)


def plan(seen: ObservedJob, found: Observed) -> Plan:
    return reconcile(seen, found, NOW, image=IMAGE)


def names(plan: Plan) -> list[str]:
    """Return the names of the actions."""
    return [type(each).__name__ for each in plan.actions]


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


@dataclass(frozen=True)
class Case:
    """A situation and the expected actions."""

    name: str
    seen: ObservedJob
    found: Observed
    does: list[str]


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
CASES = (
    Case(
        "a new job",
        job(),
        Observed(),
        ["ApplyPrerequisites", "CreateWorkers"],
    ),
    Case("a job at work", job(), running(), []),
    Case("a worker begins again in its pod", job(), rebooted(STUCK_S), []),
    Case("a worker never begins again", job(), rebooted(STUCK_S + 1), ["DeleteWorkerPod"]),
    Case("a worker has ended", job(), rebooted(STUCK_S + 1, phase="Failed"), []),
    Case(
        "a worker is deleted that never begins again",
        job(),
        rebooted(STUCK_S + 1, deletion_requested_at=NOW),
        [],
    ),
    Case(
        "a worker waits before it begins again",
        job(),
        observed(
            pod(0, container={"waiting": {}}, last={"terminated": {"exitCode": 137}}),
            pod(1),
            workers=worker_job(job()),
            for_s=600.0,
        ),
        [],
    ),
    Case(
        "prerequisites applied long ago",
        job(),
        running(prerequisites_applied_s=700.0),
        ["ApplyPrerequisites"],
    ),
    Case("an invalid spec", job({"samples": 0}), Observed(), []),
    Case("an invalid change of a job at work", job({"samples": 0}), running(), []),
    Case("suspended from the start", job(SUSPENDED), Observed(), []),
    Case("suspend requested", job(SUSPENDED), running(sandboxes_left=True), ["AdjustWorkers"]),
    Case("suspending, workers drain", job(SUSPENDED), draining, []),
    Case(
        "suspending, workers drain since a day, by a clock that has jumped",
        job(SUSPENDED),
        replace(draining, pods=(pod(0, deletion_requested_at=at(-DAY_S)),)),
        [],
    ),
    Case(
        "suspending, workers take too long",
        job(SUSPENDED),
        drains(DRAIN_S + 1),
        ["DeleteSandboxes"],
    ),
    Case(
        "suspending, workers are gone",
        job(SUSPENDED),
        replace(draining, pods=()),
        ["DeleteSandboxes"],
    ),
    Case(
        "suspended",
        job(SUSPENDED),
        replace(draining, pods=(), sandboxes_left=False),
        [],
    ),
    Case(
        "resume requested",
        job(),
        observed(workers=worker_job(job(), suspended=True)),
        ["AdjustWorkers"],
    ),
    Case(
        "waiting in a queue",
        job(QUEUED),
        observed(workers=worker_job(job(QUEUED), suspended=True)),
        [],
    ),
    Case("admitted by its queue", job(QUEUED), running(QUEUED), []),
    Case(
        "queued, suspend requested",
        job(QUEUED | SUSPENDED),
        running(QUEUED),
        ["DeleteWorkers"],
    ),
    Case("new worker pods needed", job({"workers": {"count": 3}}), running(), ["DeleteWorkers"]),
    Case(
        "new worker pods needed, the old ones drain",
        job({"workers": {"count": 3}}),
        running(workers=worker_job(job(), deleted=True)),
        [],
    ),
    Case("a later deadline", job({"activeDeadlineSeconds": 60.5}), running(), ["AdjustWorkers"]),
    Case(
        "workers done, not yet counted",
        job(),
        observed(workers=worker_job(job(), conditions={"Complete": ""}, completed_at=NOW)),
        [],
    ),
    Case("over, sandboxes left", ended(job()), observed(sandboxes_left=True), ["DeleteSandboxes"]),
    Case(
        "over, kept for a while",
        ended(job({"ttlSecondsAfterFinished": 60}), ago_s=59),
        observed(sandboxes_left=False),
        [],
    ),
    Case(
        "over, its time to live too",
        ended(job({"ttlSecondsAfterFinished": 60}), ago_s=60),
        observed(sandboxes_left=False, for_s=60),
        ["DeleteJob"],
    ),
    Case(
        "over since a day, by a clock that has jumped",
        ended(job({"ttlSecondsAfterFinished": 3600}), ago_s=DAY_S),
        observed(sandboxes_left=False, for_s=OVER_S - 1),
        [],
    ),
    Case(
        "over since a day, and the operator began anew",
        ended(job({"ttlSecondsAfterFinished": 3600}), ago_s=DAY_S),
        observed(sandboxes_left=False, for_s=OVER_S),
        ["DeleteJob"],
    ),
    Case(
        "over tomorrow, by a clock that was put right",
        ended(job({"ttlSecondsAfterFinished": 3600}), ago_s=-DAY_S),
        observed(sandboxes_left=False, for_s=3600),
        ["DeleteJob"],
    ),
    Case("budget spent, not yet written down", job(), SPENT, []),
    Case("budget spent", out_of_budget(job()), SPENT, ["DeleteWorkers"]),
    Case(
        "budget spent, workers drain",
        out_of_budget(job()),
        replace(SPENT, workers=worker_job(job(), deleted=True)),
        [],
    ),
    Case("over, kept for good", ended(job(), ago_s=1e6), observed(sandboxes_left=False), []),
    Case(
        "deleted while at work",
        job(deleted_at=NOW),
        running(sandboxes_left=True),
        ["DeleteWorkers"],
    ),
    Case(
        "deleted, workers drain",
        job(deleted_at=NOW),
        replace(draining, workers=worker_job(job(), deleted=True)),
        [],
    ),
    Case(
        "deleted, workers take too long",
        job(deleted_at=NOW),
        replace(drains(DRAIN_S + 1), workers=worker_job(job(), deleted=True)),
        ["DeleteSandboxes"],
    ),
    Case(
        "deleted, sandboxes without workers",
        job(deleted_at=NOW),
        observed(sandboxes_left=True),
        ["DeleteSandboxes"],
    ),
    Case("deleted, nothing left", job(deleted_at=NOW), observed(sandboxes_left=False), []),
    Case(
        "deleted with an invalid spec",
        job({"samples": 0}, deleted_at=NOW),
        running(sandboxes_left=False),
        ["DeleteWorkers"],
    ),
)


def test_the_pod_that_is_deleted_is_the_stuck_one_and_the_next_round_is_soon() -> None:
    found = rebooted(STUCK_S + 1)
    (action,) = plan(job(), found).actions
    assert isinstance(action, actions.DeleteWorkerPod)
    assert action.uid == found.pods[1].metadata.uid
    assert plan(job(), rebooted(0.0)).next_round_s == ACTIVE_INTERVAL_S


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_situation_decides_what_is_done(case: Case) -> None:
    assert names(plan(case.seen, case.found)) == case.does


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
    assert expects_no_sandboxes(job(SUSPENDED))
    assert expects_no_sandboxes(job(deleted_at=NOW))
    assert expects_no_sandboxes(ended(job()))


def test_a_finished_job_is_left_alone_until_its_time_to_live_is_over() -> None:
    clean = observed(sandboxes_left=False)
    seen = observed(sandboxes_left=False, for_s=20)

    assert plan(ended(job()), clean).next_round_s is None
    assert plan(ended(job({"ttlSecondsAfterFinished": 60}), ago_s=20), seen).next_round_s == 40
    assert plan(ended(job()), observed()).next_round_s == 2


def test_a_changing_job_is_reconciled_often_and_a_steady_one_rarely() -> None:
    assert plan(job(), running()).next_round_s == 30
    assert plan(job(), observed(pod(0), workers=worker_job(job()))).next_round_s == 2
    assert plan(job(SUSPENDED), draining).next_round_s == 2
    assert plan(job(SUSPENDED), observed(sandboxes_left=False)).next_round_s == 30
