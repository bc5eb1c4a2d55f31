"""A job that runs again: it continues, grows, names damage, and tells the truth at the end."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from e2e.command import Job, printed_json, swe_rollout
from e2e.records import committed
from pages import contents
from swe_rollout import RolloutJob, open_store, read_trajectories
from swe_rollout.errors import UsageError

pytestmark = [pytest.mark.threat(point=18), pytest.mark.threat(point=20)]


@pytest.mark.slow
def test_damage_is_named_left_out_and_rolled_out_again(job_file: Callable[..., Job]) -> None:
    job = job_file(scenarios=["gold", "empty"])
    swe_rollout("run", str(job.path))
    first, second = sorted(committed(job.folder))
    whole = second.read_bytes()
    first.write_bytes(first.read_bytes()[:-5])
    odd = job.folder / "episodes" / "an odd\nname" / "0" / "trajectory.json.zst"
    odd.parent.mkdir(parents=True)
    odd.write_bytes(b"")

    parquet, page = job.folder / "out.parquet", job.folder / "out.html"
    for command in (
        ("status", job.uri),
        ("export", job.uri, "-O", str(parquet)),
        ("view", job.uri, "-O", str(page)),
    ):
        told = swe_rollout(*command).stderr
        assert f"{first.parent.name}/trajectory.json.zst is damaged" in told
        assert "is no trajectory's name" in told
        assert "--rerun-damaged" in told
    index, *_ = contents(page.read_text())
    assert "is damaged" in index["jobs"][0]["damaged"][0]

    left = swe_rollout("run", str(job.path), "-o", "json", check=False)
    assert left.returncode == 1
    ran = {"episodes": 2, "already_committed": 1, "ran": 0, "left": 1}
    assert printed_json(left)["run"] == ran
    assert len(printed_json(left)["damaged"]) == len(printed_json(left)["strays"]) == 1

    again = swe_rollout("run", str(job.path), "--rerun-damaged", "-o", "json")

    assert printed_json(again)["committed"] == 2
    assert printed_json(again)["run"]["ran"] == 1
    assert second.read_bytes() == whole
    assert len(list((job.folder / "damaged").rglob("*-trajectory.json.zst"))) == 1


@pytest.mark.threat(point=21)
def test_a_run_from_python_gives_trajectories_and_so_does_its_store(
    job_file: Callable[..., Job],
) -> None:
    file = job_file(scenarios=["gold", "empty"])
    job = RolloutJob.from_yaml(file.path)

    result = job.run()
    again = job.run()

    rewards = [trajectory.reward and trajectory.reward.value for trajectory in result]
    assert rewards == [1.0, 0.0]
    assert list(result.trajectories()) == list(again) == list(read_trajectories(file.uri))
    assert (result.ran, result.already_committed) == (2, 0)
    assert (again.ran, again.already_committed) == (0, 2)
    assert again.summary == result.summary == open_store(file.store).job("job").summary()
    assert json.loads(again.summary.to_json()) == printed_json(
        swe_rollout("status", file.uri, "-o", "json")
    )
    for shown in (job, result, again.summary, *result):
        assert repr(shown).startswith("<")
        assert "\n" not in repr(shown)
        assert len(repr(shown)) < 300
    (stored,) = open_store(file.store).jobs()
    assert stored.name == "job"
    with pytest.raises(UsageError, match="no job nothing"):
        open_store(file.store).job("nothing")
