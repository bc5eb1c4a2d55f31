"""The steps of the tutorial that need nothing but this machine, as a reader follows them.

Step 2 is in tests/sglang, step 4 in tests/cluster; of step 5 only the files can be checked.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from checkout import ROOT
from doc_steps import Reader, steps
from e2e import warm
from swe_rollout import RolloutJob, read_trajectories
from swe_rollout.sandbox.local import bubblewrap

TUTORIAL = ROOT / "docs" / "tutorial"


def reader_in(folder: Path) -> Reader:
    return Reader(folder, programs=warm.programs(), python="swe-rollout")


@pytest.fixture(scope="module")
def hour(tmp_path_factory: pytest.TempPathFactory) -> tuple[Reader, str]:
    """Somebody who has followed step 1, and what it printed."""
    reader = reader_in(tmp_path_factory.mktemp("hour"))
    return reader, reader.follow(TUTORIAL / "1-laptop.md")


def test_step_1_runs_and_reads_a_job(hour: tuple[Reader, str]) -> None:
    reader, printed = hour

    assert len(list(read_trajectories(str(reader.folder / "runs" / "demo")))) == 6
    assert (reader.folder / "job.html").exists()
    assert (reader.folder / "episode.html").exists()
    assert "4 episodes" in printed or "sqlparse-0.5.2" in printed
    assert "of which the policy sampled" in printed


@pytest.mark.skipif(
    bool(bubblewrap.refusal()), reason="needs bubblewrap: apt-get install bubblewrap"
)
def test_step_3_makes_a_task_and_a_tool(tmp_path: Path) -> None:
    printed = reader_in(tmp_path).follow(TUTORIAL / "3-tasks-and-tools.md")

    right, nothing = read_trajectories(str(tmp_path / "runs" / "tasks"))
    assert right.reward is not None
    assert nothing.reward is not None
    assert (right.reward.value, nothing.reward.value) == (1.0, 0.0)
    assert "handed in: calculator.py" in printed
    assert "handed in: nothing" in printed


def test_step_6_reads_the_groups_of_step_1(hour: tuple[Reader, str]) -> None:
    reader, _ = hour
    groups = steps(TUTORIAL / "6-trainer.md")[0]

    first, again = reader.carry_out(groups), reader.carry_out(groups)

    rewards = [float(line.split()[1]) for line in first.splitlines()]
    advantages = [float(line.split()[2]) for line in first.splitlines()]
    assert sorted(rewards) == [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]
    assert all(
        (reward > 0) == (advantage > 0)
        for reward, advantage in zip(rewards, advantages, strict=True)
    )
    assert again == ""


@pytest.mark.parametrize("page", sorted(TUTORIAL.glob("*.md")), ids=lambda page: page.stem)
def test_a_job_of_any_step_is_one_that_the_schema_takes(page: Path) -> None:
    for step in steps(page):
        if step.language == "yaml":
            RolloutJob.model_validate(yaml.safe_load(step.text))


def test_every_file_that_a_step_uses_is_named_before() -> None:
    jobs = [
        step for page in TUTORIAL.glob("*.md") for step in steps(page) if step.language == "yaml"
    ]
    assert len(jobs) >= 5
    assert [step.text for step in jobs if step.file is None] == []


def test_step_6_trains_with_the_snippet_of_the_how_to() -> None:
    """Only `make test-trainers` can run it: beside TRL, whose page has the same one."""
    first = next(step for step in steps(ROOT / "docs" / "how-to" / "trl.md"))
    assert first.text == steps(TUTORIAL / "6-trainer.md")[1].text
