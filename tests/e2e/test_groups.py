"""Groups of real episodes: a stream with injected failures, and the same from its store alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from e2e.command import Job
from e2e.losing import LOSING
from swe_rollout import RolloutJob, open_store

SCENARIOS = ["gold", "empty", "gold"]


def test_a_lost_sample_is_replaced_and_the_advantages_are_those_of_a_clean_run(
    job_file: Callable[..., Job], tmp_path: Path
) -> None:
    """Want 8: the refill is one sample, in real sandboxes."""
    code = tmp_path / "losing.py"
    code.write_text(LOSING)
    clean_file = job_file(scenarios=SCENARIOS)
    with RolloutJob.from_yaml(
        clean_file.path, overrides=["metadata.name=clean"]
    ).stream() as groups:
        (clean,) = groups
    file = job_file(
        scenarios=SCENARIOS, sandbox={"backend": {"use": "losing:Losing"}}, retry={"attempts": 1}
    )
    job = RolloutJob.from_yaml(file.path, files=[code])

    with job.stream("t1") as groups:
        groups.announce("scripted")
        (group,) = groups
        groups.ack(group)
        assert groups.counts.failed_samples == 1

    assert [each.rollout_id for each in group.failed] == ["job/sqlparse-0.5.2/1"]
    assert [each.episode.sample for each in group.trajectories] == [0, 4, 2]
    assert group.rewards == clean.rewards == (1.0, 0.0, 1.0)
    assert group.advantages() == clean.advantages()
    assert all(any(sample.loss_mask) for sample in group.samples)

    stored = open_store(file.store).job("job")
    assert list(stored.groups("t1", wait_s=0)) == []
    assert [each.state for each in stored.claims("t1")] == ["trained"]
    (again,) = stored.groups("t2", wait_s=0)
    assert (again.trajectories, again.failed) == (group.trajectories, group.failed)
