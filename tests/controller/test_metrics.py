"""Metrics of the operator: few series, however many jobs there are, and none of deleted ones."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs
from prometheus_client.registry import Collector

from controller.builders import job
from rollout_operator import metrics
from rollout_operator.metrics import Metrics
from rollout_operator.observed import ObservedJob
from swe_rollout.spec.status import State


def named(number: int, state: State) -> ObservedJob:
    found = job(status={"state": state.value, "episodes": {"total": 8, "committed": 3}})
    return replace(found, metadata=structs.replace(found.metadata, name=f"job-{number}"))


def served(jobs: list[ObservedJob]) -> Collector:
    found = Metrics()
    found.serve(0, lambda: jobs)()
    return found.registry


def shown(registry: Collector) -> set[str]:
    return {
        sample.labels["rolloutjob"]
        for family in registry.collect()
        for sample in family.samples
        if family.name == "swe_rollout_episodes"
    }


def test_the_counts_of_a_job_have_its_name_beside_prometheus_own_labels() -> None:
    found = Metrics()
    jobs = [named(0, State.RUNNING)]
    found.serve(0, lambda: jobs)()
    labels = {"namespace": "team", "rolloutjob": "job-0", "kind": "committed"}
    assert found.registry.get_sample_value("swe_rollout_episodes", labels) == 3
    jobs.clear()
    assert found.registry.get_sample_value("swe_rollout_episodes", labels) is None


def test_beyond_a_bound_jobs_that_have_ended_have_no_series(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever may create RolloutJobs can't fill a Prometheus with them."""
    monkeypatch.setattr(metrics, "MOST_JOBS", 3)
    ended = [named(number, State.COMPLETE) for number in range(5)]
    running = [named(number, State.RUNNING) for number in range(10, 12)]
    assert shown(served([*ended, *running])) == {"job-10", "job-11", "job-0"}
    assert len(shown(served(ended[:3]))) == 3
