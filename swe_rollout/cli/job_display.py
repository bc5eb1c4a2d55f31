"""Follow a job on the cluster: a live screen on a terminal, plain lines elsewhere, or nothing.

It shows the status that the operator writes, supplemented from the job's records; `run_display`
shows a run in this process, `stored_display` one that another process writes into a store.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from rich.text import Text

from swe_rollout.cli.interrupt import InterruptMessages, run_async
from swe_rollout.cli.job_records import JobRecords
from swe_rollout.cli.job_tables import write_job
from swe_rollout.cli.live_screen import SUMMARY_S, live_screen, resolve_display
from swe_rollout.cli.options import DisplayKind, OutputFormat
from swe_rollout.cli.output import say, stderr_console, write_data
from swe_rollout.cli.run_display import PlainRunLines
from swe_rollout.launcher.job_result import is_complete, summary_of
from swe_rollout.launcher.remote import deleted_error, follow, open_jobs
from swe_rollout.launcher.watched_job import WatchedJob, job_snapshot, unmet_conditions
from swe_rollout.live.progress import every
from swe_rollout.text.formatting import (
    format_duration,
    format_number,
    format_share,
    logfmt,
)

if TYPE_CHECKING:
    from rich.console import Console

    from swe_rollout.cli.job_address import JobLocation
    from swe_rollout.cluster.job_objects import JobObject


def follow_job(
    job: JobObject, location: JobLocation, *, display: DisplayKind, output: OutputFormat
) -> None:
    """Display the job until it completes, then print its results. ^C only detaches.

    Raises JobFailedError or JobRefusedError if the job does not complete.
    """
    name = f"{job.namespace}/{job.name}"
    messages = InterruptMessages(
        f"detached; the job keeps running. Stop it with: swe-rollout cancel {name}", ""
    )
    work = _follow_until_complete(job, location.context, display)
    completed = run_async(work, on_note=say, messages=messages)
    if output.is_data:
        write_data(summary_of(completed).to_dict(), output)
    else:
        write_job(completed, output)


async def _follow_until_complete(
    job: JobObject, context: str | None, display: DisplayKind
) -> JobObject:
    async with (
        open_jobs(context) as jobs,
        _open_job_display(display, WatchedJob(job), console=stderr_console()) as update,
        aclosing(follow(jobs, job)) as states,
    ):
        async for state in states:
            update(state)
            if is_complete(state):
                return state
    raise deleted_error(job)


@asynccontextmanager
async def _open_job_display(
    kind: DisplayKind, watched: WatchedJob, *, console: Console
) -> AsyncIterator[Callable[[JobObject], None]]:
    """Show a display of `kind` until the block ends; yield the function that updates it."""
    match resolve_display(kind, console):
        case DisplayKind.RICH:
            records = JobRecords(watched.job, say)
            async with (
                live_screen(console, lambda: records.added_to(job_snapshot(watched))),
                records.reading(),
            ):
                yield watched.update
        case DisplayKind.PLAIN:
            plain = PlainJobLines(watched, console)
            records = JobRecords(watched.job, say, open_progress=partial(PlainRunLines, console))
            async with every(SUMMARY_S, plain.print_progress), records.reading():
                yield plain.update
            plain.print_progress()
        case _:
            yield watched.update


class PlainJobLines:
    """Prints a line when the job's state or its problems change, and its progress periodically."""

    def __init__(self, watched: WatchedJob, console: Console) -> None:
        self._watched = watched
        self._console = console
        self._printed: list[str] = []
        self._progress = ""

    def update(self, job: JobObject) -> None:
        """Print the job's state and problems, except for unchanged lines."""
        self._watched.update(job)
        lines = [logfmt("state", job=job.name, state=str(job.status.state))]
        lines += [
            logfmt("problem", condition=str(c.type), reason=c.reason, message=c.message)
            for c in unmet_conditions(job)
        ]
        for line in lines:
            if line not in self._printed:
                self._print(line)
        self._printed = lines

    def print_progress(self) -> None:
        """Print the job's progress if it has changed."""
        job = self._watched.job
        counts = job.status.episodes
        line = logfmt(
            "progress",
            done=f"{counts.committed}/{counts.total}",
            running=counts.running - counts.grading,
            grading=counts.grading,
            awaiting_cache=counts.awaiting_cache or None,
            resolved=counts.resolved,
            masked=counts.masked,
            mean_reward=format_number(summary_of(job).mean_reward),
            masked_share=format_share(counts.masked, counts.committed),
        )
        if line != self._progress:
            self._progress = line
            elapsed = logfmt("", elapsed=format_duration(round(self._watched.elapsed_s)))
            self._print(f"{line}{elapsed}")

    def _print(self, line: str) -> None:
        self._console.print(Text(line), soft_wrap=True)
