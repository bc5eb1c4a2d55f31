"""Print jobs and their results as tables on stdout."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from swe_rollout.cli.options import OutputFormat
from swe_rollout.cli.output import say, write_data, write_lines, write_table
from swe_rollout.text.escaping import one_line
from swe_rollout.text.formatting import format_masked, format_mean, format_number
from swe_rollout.types.episode import EpisodeId

if TYPE_CHECKING:
    from swe_rollout.cluster.job_objects import JobObject
    from swe_rollout.store.damage import DamagedRecord
    from swe_rollout.store.summary import JobSummary
    from swe_rollout.types.failure_groups import FailureGroup


def write_result(summary: JobSummary, output: OutputFormat) -> None:
    """Print the state of a job in a store, and report on stderr what its counts omit."""
    if output.is_data:
        write_data(summary.to_dict(), output)
    else:
        write_summary(summary, output)
    write_left_out(summary.damaged, summary.strays)


def write_summary(summary: JobSummary, output: OutputFormat = OutputFormat.TABLE) -> None:
    """Print a job's results by instance, and its totals on stderr."""
    write_table(
        [
            *("INSTANCE", "SAMPLES#", "RESOLVED#", "MEAN REWARD#", "MASKED#", "TURNS#", "TOKENS#"),
            *("TURNS EACH#+", "TOKENS EACH#+"),
        ],
        (
            [
                row.instance,
                str(row.samples),
                str(row.resolved),
                format_number(row.mean_reward),
                format_masked(row.masked, row.samples),
                str(row.turns),
                str(row.tokens),
                *(f"{total / max(row.samples, 1):.1f}" for total in (row.turns, row.tokens)),
            ]
            for row in summary.by_instance
        ),
        output,
    )
    write_failures(summary.failure_groups, output)
    mean = format_mean(summary.mean_reward, masked=summary.masked, committed=summary.committed)
    replaced = f" ({summary.replaced} replaced)" if summary.replaced else ""
    say(
        f"{summary.job}: {summary.committed}/{summary.episodes} committed · "
        f"{summary.resolved} resolved · {summary.masked} masked{replaced} · "
        f"mean reward {mean}"
    )
    if summary.forked_from:
        say(f"all of them begin at {summary.forked_from}, and share what came before it")
    if summary.quarantined:
        count = sum(summary.quarantined.values())
        reasons = ", ".join(f"{number} {why}" for why, number in summary.quarantined.items())
        say(f"{count} tasks are in quarantine and were left out: {reasons}")


def write_failures(groups: Sequence[FailureGroup], output: OutputFormat) -> None:
    """Print what failed, the most frequent first: the first few, or with `-o wide` all of it."""
    if not groups or output is OutputFormat.NAME:
        return
    shown = groups if output is OutputFormat.WIDE else groups[:_SHOWN]
    write_lines([""])
    write_table(
        ["FAILED#", "OWNER", "MESSAGE", "FOR EXAMPLE", "WHAT TO DO"],
        [[f"{each.count:,}", each.owner, each.message, each.example, each.fix] for each in shown],
    )
    if len(shown) < len(groups):
        say(f"… and {len(groups) - len(shown)} more kinds of failures: -o wide shows them")


def say_failures(groups: Sequence[FailureGroup]) -> None:
    """Print the most frequent failures on stderr, where a job ends by an error."""
    for each in groups[:_SHOWN]:
        say(f"{each.count:,} failed: {each.owner}: {each.message}; for example {each.example}")
        say(f"  fix   {each.fix}")
    if len(groups) > _SHOWN:
        say(f"… and {len(groups) - _SHOWN} more kinds of failures")


def write_jobs(jobs: Iterable[JobObject], output: OutputFormat = OutputFormat.TABLE) -> None:
    """Print one line per job: the columns of `kubectl get rolloutjobs`, and those in grading."""
    columns = [
        "JOB",
        "STATE",
        "DONE",
        "RESOLVED",
        "REWARD",
        "MASKED#",
        "RUNNING#",
        "GRADING#",
        "POLICY",
    ]
    write_table([*columns, "STORE+"], [_row(job) for job in jobs], output)


def write_job(job: JobObject, output: OutputFormat = OutputFormat.TABLE) -> None:
    """Print a job on the cluster, the outcomes of its episodes, and its conditions."""
    from swe_rollout.launcher.watched_job import count_outcomes

    write_jobs([job], output)
    if output is OutputFormat.NAME:
        return
    outcomes = count_outcomes(job)
    if outcomes:
        write_lines([""])
        write_table(["OUTCOME", "EPISODES#"], [[name, str(count)] for name, count in outcomes])
    if waiting := job.status.episodes.awaiting_cache:
        say(f"{waiting} running episodes wait for room in the engine's KV cache")
    if job.status.failures:
        records = f"{job.spec.store.uri.rstrip('/')}/{job.name}"
        say(f"`swe-rollout status {records}` lists what failed, and what to do about it")
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
        format_masked(status.episodes.masked, status.episodes.committed),
        str(status.episodes.running),
        str(status.episodes.grading),
        status.policy,
        job.spec.store.uri,
    ]


_SHOWN = 5


def write_left_out(damaged: Sequence[DamagedRecord], strays: Sequence[str] = ()) -> None:
    """Print the first few on stderr, one per line, and how to run them again."""
    for line in _first(damaged):
        say(f"left out: {line}")
    if damaged:
        from swe_rollout.store.damage import RERUN

        say(f"  fix   {RERUN}")
    for line in _first(strays):
        say(f"left out: {line} is no trajectory's name")


def write_not_shown(left_out: Sequence[tuple[EpisodeId, str]]) -> None:
    """Print the first few episodes that a format can't show on stderr, one per line."""
    for line in _first([f"{episode}: {why}" for episode, why in left_out]):
        say(f"left out: {line}")


def _first(found: Sequence[object]) -> list[str]:
    more = len(found) - _SHOWN
    lines = [one_line(str(each)) for each in found[:_SHOWN]]
    return lines + ([f"… and {more} more"] if more > 0 else [])
