"""A followed job on a screen and on a pipe."""

from __future__ import annotations

import io

from rich.console import Console

from swe_rollout.cli.job_display import PlainJobLines
from swe_rollout.launcher.watched_job import WatchedJob
from unit.cli.job_parts import cluster_job, condition


def test_a_pipe_gets_a_line_for_each_change_and_no_line_twice() -> None:
    console = Console(file=io.StringIO(), width=400)
    plain = PlainJobLines(WatchedJob(cluster_job()), console)
    down = [condition("ModelReady", "False", "the engine is down")]

    for state in (
        cluster_job(),
        cluster_job(),
        cluster_job(conditions=down),
        cluster_job(conditions=down),
        cluster_job(state="Complete"),
    ):
        plain.update(state)
    plain.print_progress()
    plain.print_progress()

    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert lines[:3] == [
        "state job=demo state=Running",
        'problem condition=ModelReady reason=Because message="the engine is down"',
        "state job=demo state=Complete",
    ]
    assert lines[3].startswith(
        "progress done=3/8 running=2 grading=0 resolved=1 masked=1 mean_reward=0.50"
    )
    assert len(lines) == 4
