"""Jobs of the cluster as tables."""

from __future__ import annotations

import pytest

from swe_rollout.cli.job_tables import write_job, write_jobs, write_summary
from swe_rollout.launcher.job_result import summary_of
from unit.cli.job_parts import cluster_job, condition


def test_a_job_is_shown_with_its_outcomes_and_conditions(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_job(cluster_job(conditions=[condition("Accepted", "True")], progress="3/8"))

    shown = capsys.readouterr()
    words = shown.out.split()
    assert "/demo` lists what failed, and what to do about it" in shown.err
    assert "ns/demo" in words
    assert "submitted" in words
    assert words[-3:] == ["Accepted", "True", "Because"]


@pytest.mark.threat(point=8)
def test_masked_episodes_stand_beside_the_reward(capsys: pytest.CaptureFixture[str]) -> None:
    write_jobs([cluster_job()])
    header, row = capsys.readouterr().out.splitlines()
    assert header.split()[4:6] == ["REWARD", "MASKED"]
    assert "1 (33%)" in row


@pytest.mark.threat(point=8)
def test_the_totals_of_a_job_name_its_masked_share(capsys: pytest.CaptureFixture[str]) -> None:
    write_summary(summary_of(cluster_job()))
    assert "mean reward 0.50 (33% masked)" in capsys.readouterr().err


def test_episodes_that_wait_for_the_cache_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    write_job(cluster_job(episodes={"total": 8, "running": 2, "awaitingCache": 2}))
    assert "2 running episodes wait for room in the engine's KV cache" in capsys.readouterr().err
