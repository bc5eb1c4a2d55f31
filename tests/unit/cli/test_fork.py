"""`fork`: the job that it makes of the one that is forked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from swe_rollout.cli.fork import fork_name
from swe_rollout.spec.job import RolloutJob
from swe_rollout.spec.load import load_job
from swe_rollout.types.episode import EpisodeId
from unit.cli.cli_parts import Cli

Fork = Callable[..., tuple[RolloutJob, RolloutJob]]


@pytest.fixture
def fork(address: str, tmp_path: Path, cli: Cli) -> Fork:
    """Write the job of a fork with these options; return it, and the one that it forks."""

    def make(*options: str) -> tuple[RolloutJob, RolloutJob]:
        path = tmp_path / "fork.yaml"
        done = cli("fork", f"{address}/a/1", "--turn", "6", *options, "-O", str(path))
        assert done.out == f"{path}\n"
        origin = yaml.safe_load(Path(address, "job.yaml").read_text())
        return load_job(path), RolloutJob.model_validate(origin)

    return make


def test_a_fork_is_the_job_of_its_origin_with_another_name_and_beginning(
    fork: Fork, tmp_path: Path
) -> None:
    job, origin = fork("--samples", "8")
    assert job.spec.fork is not None
    assert job.spec.fork.model_dump() == {
        "uri": f"file://{tmp_path}/runs/demo",
        "instance": "a",
        "sample": 1,
        "turn": 6,
    }
    assert job.spec.samples == 8
    assert job.metadata.name == fork_name(EpisodeId("demo", "a", 1), 6)
    assert job.spec.store.uri == f"file://{tmp_path}/runs"
    same = job.with_spec(fork=None, samples=2, store=origin.spec.store)
    assert same.spec == origin.spec
    assert job.digest != origin.digest
    assert job.spec.tasks.include == ("a",)


def test_options_and_fields_are_set(fork: Fork) -> None:
    job, _ = fork("--name", "child", "--train-inherited", "--set", "spec.sampling.seed=4")
    assert job.metadata.name == "child"
    assert job.spec.sampling.seed == 4
    assert job.spec.fork is not None
    assert job.spec.fork.train_inherited
    assert job.spec.samples == 1


def test_a_job_of_pods_is_written_for_their_namespace(fork: Fork) -> None:
    """Workers store the namespace of their pods in the spec, where a cluster refuses it."""
    pods = '{"pod": {"namespace": "team", "resources": {"cpu": "2"}}}'
    job, _ = fork("--set", f"spec.sandbox={pods}")
    assert job.metadata.namespace == "team"
    assert job.spec.sandbox.pod is not None
    assert job.spec.sandbox.pod.namespace is None
    assert job.spec.sandbox.pod.resources.cpu == "2"


def test_the_name_follows_from_the_turn_and_is_a_name() -> None:
    long = EpisodeId("a" * 39 + "-" + "b" * 20, "task", 0)
    names = {fork_name(long, 3), fork_name(long, 4), fork_name(EpisodeId("demo", "task", 0), 3)}
    assert len(names) == 3
    spec: dict[str, object] = {"dataset": {"releasePairs": {}}, "policy": {"scripted": {}}}
    for name in names:
        RolloutJob.model_validate({"metadata": {"name": name}, "spec": spec})
    assert "--" not in fork_name(long, 3)
