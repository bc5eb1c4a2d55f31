"""A job that forks another one: its fields, its tasks and its digest."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from swe_rollout.spec.job import ForkSpec, RolloutJob

FORK = {"uri": "s3://rollouts/demo", "instance": "a__b-1", "sample": 0, "turn": 3}


def job(**spec: Any) -> RolloutJob:
    base = {"dataset": {"releasePairs": {}, "slice": "5:"}, "policy": {"scripted": {}}}
    return RolloutJob.model_validate({"metadata": {"name": "demo"}, "spec": base | spec})


@pytest.mark.parametrize(
    "uri", ["s3://rollouts/demo", "file:///data/runs/demo", "gs://b/p/demo-1/", "file://runs/demo"]
)
def test_an_address_of_a_job_is_taken(uri: str) -> None:
    assert job(fork=FORK | {"uri": uri}).spec.fork == ForkSpec(
        uri=uri.rstrip("/"), instance="a__b-1", sample=0, turn=3
    )


@pytest.mark.parametrize(
    "changed",
    [
        {"uri": "s3://rollouts"},
        {"uri": "s3:///demo"},
        {"uri": "http://host/demo"},
        {"uri": "s3://user:password@rollouts/demo"},
        {"uri": "s3://rollouts/../Demo"},
        {"uri": "demo"},
        {"turn": 0},
        {"turn": -1},
        {"sample": -1},
        {"sample": 10**9},
        {"instance": "../etc"},
        {"instance": ""},
        {"instance": "a" * 300},
        {"unknown": 1},
    ],
)
def test_anything_else_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        job(fork=FORK | changed)


def test_a_fork_has_the_one_task_whatever_its_dataset_selects() -> None:
    spec = job(fork=FORK).spec
    assert (spec.tasks.include, spec.tasks.exclude, spec.tasks.slice) == (("a__b-1",), (), "")
    assert spec.dataset.slice == "5:"
    plain = job().spec
    assert plain.tasks is plain.dataset


def test_episodes_of_different_beginnings_are_no_part_of_one_job() -> None:
    digests = {
        job().digest,
        job(fork=FORK).digest,
        job(fork=FORK | {"turn": 4}).digest,
        job(fork=FORK | {"sample": 1}).digest,
        job(fork=FORK | {"trainInherited": True}).digest,
    }
    assert len(digests) == 5
    assert job(store={"uri": "file://runs", "keepJournals": True}).digest == job().digest


def test_a_job_that_is_no_fork_is_written_as_before() -> None:
    written = job().to_yaml_dict()["spec"]
    assert isinstance(written, dict)
    assert "fork" not in written
    assert written["store"] == {"uri": "file://runs"}


def test_journals_that_are_not_written_can_not_be_kept() -> None:
    with pytest.raises(ValidationError, match=r"retry\.resume"):
        job(store={"uri": "file://runs", "keepJournals": True}, retry={"resume": "never"})
