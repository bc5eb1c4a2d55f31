"""`diff` of jobs and of episodes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from swe_rollout.types.verdict import Reward, RewardTerm, Verdict, VerdictStatus
from unit.cli.cli_parts import run_cli
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


def test_two_jobs_as_tables(
    jobs: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(monkeypatch, "diff", *jobs) == 0
    told = capsys.readouterr()
    lines = [" ".join(line.split()) for line in told.out.splitlines()]
    assert "reward 1.00 0.00 -1.00 – 1 too few tasks to tell" in lines
    assert "turns 3.0 3.0 +0.0 – 1 no difference" in lines
    assert "a 2/2 1.00 0/2 0.00 -1.00 no longer solved" in lines
    assert "sandbox failed 0 1" in lines
    assert any(line.startswith("spec.dataset.swebench.uri ") for line in lines)
    assert "2 and 2 episodes · tasks: 1 no longer solved" in told.err


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_two_jobs_as_data(
    form: str,
    jobs: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    damage(jobs[1], 0)
    assert run_cli(monkeypatch, "diff", *jobs, "-o", form) == 0
    told = capsys.readouterr()
    found = json.loads(told.out) if form == "json" else yaml.safe_load(told.out)
    assert (found["first"], found["second"]) == jobs
    assert found["failures"] == [{}, {"sandbox": 1}]
    assert found["tasks"][0]["flip"] == "not graded in both"
    assert "left out: " in told.err


def test_names_are_the_tasks_that_changed(
    jobs: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(monkeypatch, "diff", *jobs, "-o", "name") == 0
    assert capsys.readouterr().out == "a\n"


def test_two_episodes(
    jobs: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(monkeypatch, "diff", f"{jobs[0]}/a/0", f"{jobs[1]}/a/0", "-o", "wide") == 0
    told = capsys.readouterr()
    lines = [line.split() for line in told.out.splitlines()]
    assert ["verdict", "resolved", "unresolved"] in lines
    assert ["task", "a", "a"] in lines
    assert "-+b" in told.out.splitlines()
    assert "both sampled the same text" in told.err

    assert run_cli(monkeypatch, "diff", f"{jobs[0]}/a/0", f"{jobs[1]}/a/0", "-o", "name") == 0
    assert capsys.readouterr().out.split() == ["verdict", "reward", "patch"]


def test_a_job_is_not_compared_with_an_episode_or_with_itself(
    jobs: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(monkeypatch, "diff", jobs[0], f"{jobs[1]}/a/0") == 2
    assert "fix" in capsys.readouterr().err
    assert run_cli(monkeypatch, "diff", jobs[0], jobs[0]) == 2
