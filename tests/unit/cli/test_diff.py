"""`diff` of jobs and of episodes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from swe_rollout.types.verdict import Reward, RewardTerm, Verdict, VerdictStatus
from unit.cli.cli_parts import Cli
from unit.cli.store_parts import EPISODES, damage, stored
from unit.export.export_parts import failed


@pytest.fixture
def jobs(tmp_path: Path) -> tuple[str, str]:
    """Two jobs of one task: both samples solve it, or none does."""
    assert EPISODES[0].verdict is not None
    verdict = Verdict(VerdictStatus.UNRESOLVED, EPISODES[0].verdict.report)
    reward = Reward((RewardTerm("resolved", 0.0),))
    worse = replace(EPISODES[0], verdict=verdict, reward=reward, patch="")
    addresses = []
    for name, episodes in {"one": EPISODES, "two": (worse, failed(EPISODES[1]))}.items():
        folder = tmp_path / name
        folder.mkdir()
        addresses.append(stored(folder, episodes))
    return addresses[0], addresses[1]


def test_two_jobs_as_tables(jobs: tuple[str, str], cli: Cli) -> None:
    done = cli("diff", *jobs)
    lines = [" ".join(row) for row in done.rows]
    assert "reward 1.00 0.00 -1.00 – 1 too few tasks to tell" in lines
    assert "turns 3.0 3.0 +0.0 – 1 no difference" in lines
    assert "a 2/2 1.00 0/2 0.00 -1.00 no longer solved" in lines
    assert "sandbox failed 0 1" in lines
    assert any(line.startswith("spec.dataset.swebench.uri ") for line in lines)
    assert "2 and 2 episodes · tasks: 1 no longer solved" in done.err
    assert cli("diff", *jobs, "-o", "name").out == "a\n"


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_two_jobs_as_data(form: str, jobs: tuple[str, str], cli: Cli) -> None:
    damage(jobs[1], 0)
    done = cli("diff", *jobs, "-o", form)
    found = json.loads(done.out) if form == "json" else yaml.safe_load(done.out)
    assert (found["first"], found["second"]) == jobs
    assert found["failures"] == [{}, {"sandbox": 1}]
    assert found["tasks"][0]["flip"] == "not graded in both"
    assert "left out: " in done.err


def test_two_episodes(jobs: tuple[str, str], cli: Cli) -> None:
    both = f"{jobs[0]}/a/0", f"{jobs[1]}/a/0"
    done = cli("diff", *both, "-o", "wide")
    assert ["verdict", "resolved", "unresolved"] in done.rows
    assert ["task", "a", "a"] in done.rows
    assert "-+b" in done.out.splitlines()
    assert "both sampled the same text" in done.err
    assert cli("diff", *both, "-o", "name").out.split() == ["verdict", "reward", "patch"]
    assert cli("diff", *both, "-o", "json").json["first"] == both[0]
