"""JobController and Operator without a cluster: their memory, back-off, and errors of one job.

The rest needs a cluster: `tests/cluster/test_operator.py`.
"""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from controller.builders import NOW, UID, WORKERS_UID, at, job, pod, progress_of, worker_job
from rollout_operator import controller as controller_module
from rollout_operator.controller import JobController
from rollout_operator.handlers import JobKey, Operator, Options
from rollout_operator.kube import Kube
from rollout_operator.metrics import Metrics
from rollout_operator.observed import Metadata, Observed, WorkerJob
from rollout_operator.sightings import Stage
from swe_rollout.cluster.api_error import api_error
from swe_rollout.errors import UnreachableError
from swe_rollout.spec.status import RolloutJobStatus
from waits import until

JOB = {"name": "demo", "namespace": "team", "uid": UID, "generation": 2}


class FailingKube(Kube):
    """A cluster whose every list raises this error, and that takes every status."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.requests: list[float] = []
        """When, in seconds of the loop's clock."""
        self.written: list[RolloutJobStatus] = []

    async def worker_job(self, namespace: str, job: str) -> WorkerJob | None:  # noqa: ARG002
        self.requests.append(asyncio.get_running_loop().time())
        raise self.error

    async def write_status(
        self,
        job: Metadata,  # noqa: ARG002
        status: RolloutJobStatus,
        *,
        before: RolloutJobStatus,  # noqa: ARG002
    ) -> None:
        self.written.append(status)


def controller_of(kube: Kube) -> JobController:
    return JobController(job(), kube, Metrics(), image="swe-rollout/worker:test")


def at_work() -> JobController:
    """Return the controller of a job that has its worker Job."""
    controller = controller_of(FailingKube(KeyError()))
    controller.on_workers(worker_job(job()), deleted=False)
    return controller


async def observed(controller: JobController) -> Observed:
    return await controller._observe(checks_sandboxes=False)


@pytest.mark.threat(point=24)
async def test_what_goes_wrong_in_a_round_is_a_condition_of_its_job_and_nobody_elses() -> None:
    kube = FailingKube(OverflowError("date value out of range"))
    operator = Operator(Options(image="swe-rollout/worker:test"))
    broken = operator.controllers[JobKey("team", "demo")] = controller_of(kube)

    broken.start()
    await until(lambda: kube.written)

    assert await operator.count_jobs() == 1
    (status,) = kube.written
    (condition,) = status.conditions
    assert (condition.type, condition.status, condition.reason) == (
        "Accepted",
        "False",
        "RoundFailed",
    )
    assert "OverflowError: date value out of range" in condition.message
    await broken.stop()


@pytest.mark.parametrize(
    "down",
    [UnreachableError("no response"), *(api_error("list", code, b"") for code in (429, 503))],
)
async def test_an_unreachable_cluster_is_no_bug_and_is_retried_with_pauses(
    monkeypatch: pytest.MonkeyPatch, down: Exception
) -> None:
    monkeypatch.setattr(controller_module, "ACTIVE_INTERVAL_S", 0.3)
    kube = FailingKube(down)
    waiting = controller_of(kube)

    waiting.start()
    waiting.on_workers(worker_job(job()), deleted=False)
    await until(lambda: len(kube.requests) > 1)
    await waiting.stop()

    assert kube.requests[1] - kube.requests[0] >= 0.3
    assert kube.written == []


async def test_the_progress_of_a_deleted_pod_is_kept_until_its_successor_is_further() -> None:
    controller = at_work()
    first, second = pod(progress=progress_of(5)), pod(progress=progress_of(0), created_at=at(9))

    controller.on_pod(first, deleted=False)
    controller.on_pod(first, deleted=True)
    controller.on_pod(second, deleted=False)
    starting = await observed(controller)
    controller.on_pod(pod(progress=progress_of(6), created_at=at(9)), deleted=False)
    counted = await observed(controller)

    assert [each.metadata.uid for each in starting.pods] == [second.metadata.uid]
    assert starting.progress[0].episodes.committed == 5
    assert counted.progress[0].episodes.committed == 6


async def test_episodes_are_counted_once_when_other_workers_divide_the_tasks() -> None:
    controller = at_work()
    controller.on_pod(pod(0, progress=progress_of(9)), deleted=False)
    controller.on_pod(pod(1, progress=progress_of(9)), deleted=False)

    after = worker_job(job())
    other = msgspec.structs.replace(
        after, metadata=msgspec.structs.replace(after.metadata, uid="uid-of-other-workers")
    )
    controller.on_workers(other, deleted=False)
    controller.on_pod(pod(0, progress=progress_of(9)), deleted=False)  # drains
    controller.on_pod(
        pod(0, progress=progress_of(4), created_at=at(9), owner="uid-of-other-workers"),
        deleted=False,
    )

    counted = (await observed(controller)).progress
    assert {index: each.episodes.committed for index, each in counted.items()} == {0: 4}


@pytest.mark.threat(point=24)
@pytest.mark.parametrize(
    ("label", "owner"),
    [("0", "somebody"), ("0", None), ("abc", WORKERS_UID), ("9" * 40, WORKERS_UID), ("", "")],
)
async def test_a_pod_is_a_worker_by_its_owner_and_its_index_not_by_its_labels(
    label: str, owner: str | None
) -> None:
    controller = at_work()

    controller.on_pod(pod(index_label=label, owner=owner, progress=progress_of(9)), deleted=False)

    found = await observed(controller)
    assert (found.pods, found.progress) == ((), {})


def test_a_watch_event_never_changes_the_known_status() -> None:
    controller = controller_of(FailingKube(KeyError()))
    changed = {"metadata": JOB, "spec": {"samples": 0}, "status": {"progress": "9/9"}}

    controller.on_job(controller.job.updated(changed))

    assert controller.job.status == RolloutJobStatus()
    assert "spec.samples" in controller.job.problems


async def test_the_newest_worker_is_the_one_seen_last_whatever_the_clock_says() -> None:
    """After a jump back, a pod that replaces another was created before it."""
    controller = at_work()
    controller.on_pod(pod(0, phase="Failed", created_at=NOW), deleted=False)
    await observed(controller)
    controller.on_pod(pod(0, progress=progress_of(3), created_at=at(-3600)), deleted=False)

    (newest,) = (await observed(controller)).newest_pods
    assert newest.live
    # So it is for an operator that sees both for the first time.
    other = at_work()
    for each in controller._pods.values():
        other.on_pod(each, deleted=False)
    assert (await observed(other)).newest_pods == (newest,)


async def test_limits_count_from_the_first_sight() -> None:
    """A worker that is deleted by an API server whose clock is a day behind."""
    controller = at_work()
    controller.on_pod(pod(0, deletion_requested_at=at(-86_400)), deleted=False)

    found = await observed(controller)
    (draining,) = found.live_pods
    assert found.age_s(draining.metadata.uid, Stage.DELETING) == 0.0
    later = await observed(controller)
    assert 0.0 < later.age_s(draining.metadata.uid, Stage.DELETING) < 3600.0
