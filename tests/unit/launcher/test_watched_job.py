"""A job on the cluster, as its status tells."""

from __future__ import annotations

from swe_rollout.cli.live_layout import draw
from swe_rollout.launcher.watched_job import WatchedJob, job_snapshot, unmet_conditions
from unit.cli.job_parts import cluster_job, condition


def drawn(*, width: int, watched: WatchedJob) -> list[str]:
    return [line.plain for line in draw(job_snapshot(watched), width=width, height=40)]


def test_the_screen_has_the_same_height_whatever_happens() -> None:
    problem = [condition("SandboxesReady", "False", "no\nroom " * 50)]
    many = {f"reason_{i}": i + 1 for i in range(9)}
    states = (
        cluster_job(),
        cluster_job(conditions=problem),
        cluster_job(stopReasons=many),
        cluster_job(committed=8),
    )

    heights = {
        len(drawn(width=width, watched=WatchedJob(state)))
        for width in (40, 120)
        for state in states
    }

    assert len(heights) == 1


def test_the_screen_shows_progress_and_unmet_conditions() -> None:
    state = cluster_job(
        policy="scripted",
        startTime="2026-01-01T00:00:00Z",
        completionTime="2026-01-01T00:01:05Z",
        conditions=[
            condition("Accepted", "True"),
            condition("Complete", "False"),
            condition("ModelReady", "False", "the engine\x1b[2J is down"),
        ],
    )

    text = "\n".join(drawn(width=120, watched=WatchedJob(state)))

    for words in (
        "rolloutjob/demo",
        "Running",
        "scripted",
        "1 min 5 s",
        "3/8",
        "queued 3  running 2  grading 0  committed 3  failed 1",
        "resolved 1 · unresolved 1",
        "failures  ImagePull 1",
    ):
        assert words in text
    assert "mean 0.50  resolved 1/3" in text
    assert not {"groups", "turn", "time"} & {line.split()[0] for line in text.splitlines() if line}
    assert "Because: the engine␛[2J is down" in text
    assert [str(each.type) for each in unmet_conditions(state)] == ["ModelReady"]
