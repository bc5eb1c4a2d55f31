"""`fork`: the job that it makes of the one that is forked."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from swe_rollout.cli.fork import fork_name
from swe_rollout.spec.job import RolloutJob
from swe_rollout.spec.load import load_job
from swe_rollout.types.episode import EpisodeId
from unit.cli.cli_parts import run_cli
from unit.cli.store_parts import stored


def made(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *options: str
) -> tuple[RolloutJob, RolloutJob]:
    """Write the job of a fork; return it, and the one that it forks."""
    address = stored(folder)
    path = folder / "fork.yaml"
    made = ("fork", f"{address}/a/1", "--turn", "6", *options, "-O", str(path))
    assert run_cli(monkeypatch, *made) == 0
    origin = yaml.safe_load(Path(address, "job.yaml").read_text())
    return load_job(path), RolloutJob.model_validate(origin)


def test_a_fork_is_the_job_of_its_origin_with_another_name_and_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job, origin = made(tmp_path, monkeypatch, "--samples", "8")
    assert capsys.readouterr().out == f"{tmp_path}/fork.yaml\n"
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
    same = job.spec.model_copy(update={"fork": None, "samples": 2, "store": origin.spec.store})
    assert same == origin.spec
    assert job.digest != origin.digest
    assert job.spec.tasks.include == ("a",)


def test_options_and_fields_are_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--name", "child", "--train-inherited", "--set", "spec.sampling.seed=4")
    job, _ = made(tmp_path, monkeypatch, *options)
    assert job.metadata.name == "child"
    assert job.spec.sampling.seed == 4
    assert job.spec.fork is not None
    assert job.spec.fork.train_inherited
    assert job.spec.samples == 1


def test_a_job_of_pods_is_written_for_their_namespace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers store the namespace of their pods in the spec, where a cluster refuses it."""
    pods = '{"pod": {"namespace": "team", "resources": {"cpu": "2"}}}'
    job, _ = made(tmp_path, monkeypatch, "--set", f"spec.sandbox={pods}")
    assert job.metadata.namespace == "team"
    assert job.spec.sandbox.pod is not None
    assert job.spec.sandbox.pod.namespace is None
    assert job.spec.sandbox.pod.resources.cpu == "2"


def test_the_name_follows_from_the_turn_and_is_a_name(tmp_path: Path) -> None:
    del tmp_path
    long = EpisodeId("a" * 39 + "-" + "b" * 20, "task", 0)
    names = {fork_name(long, 3), fork_name(long, 4), fork_name(EpisodeId("demo", "task", 0), 3)}
    assert len(names) == 3
    for name in names:
        RolloutJob.model_validate(
            {
                "metadata": {"name": name},
                "spec": {"dataset": {"releasePairs": {}}, "policy": {"scripted": {}}},
            }
        )
    assert "--" not in fork_name(long, 3)


def test_a_job_is_no_episode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    address = stored(tmp_path)
    assert run_cli(monkeypatch, "fork", address, "--turn", "1") == 2
    assert "is not an episode" in capsys.readouterr().err
