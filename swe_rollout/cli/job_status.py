"""Jobs of the cluster as tables on stdout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from swe_rollout.cli.job_screen import outcomes
from swe_rollout.cli.output import write_lines, write_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from swe_rollout.cluster.job_objects import JobObject


def write_jobs(jobs: Iterable[JobObject]) -> None:
    """One line for each job, as `kubectl get rolloutjobs` has it."""
    columns = ["JOB", "STATE", "DONE", "RESOLVED", "REWARD", "RUNNING#", "MASKED#", "POLICY"]
    write_table(columns, [_row(job) for job in jobs])


def write_job(job: JobObject) -> None:
    """A job, how its episodes ended, and what the operator says of it."""
    write_jobs([job])
    ended = outcomes(job)
    if ended:
        write_lines([""])
        write_table(["OUTCOME", "EPISODES#"], [[each.name, str(each.episodes)] for each in ended])
    if job.status.conditions:
        write_lines([""])
        write_table(
            ["CONDITION", "STATUS", "REASON", "MESSAGE"],
            [[c.type, c.status, c.reason, c.message] for c in job.status.conditions],
        )


def _row(job: JobObject) -> list[str]:
    status = job.status
    return [
        f"{job.namespace}/{job.name}",
        "Ending" if job.metadata.deletion_timestamp else status.state,
        status.progress,
        status.resolved,
        status.mean_reward,
        str(status.episodes.running),
        str(status.episodes.masked),
        status.policy,
    ]
