"""A job on the cluster as it goes: a screen of fixed height on a terminal, plain lines elsewhere.

It shows the status that the operator writes; `live` and `display` show a run in this process.
"""

from __future__ import annotations

import sys
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

from rich.live import Live
from rich.text import Text

from swe_rollout.cli.display import every, logfmt
from swe_rollout.cli.job_screen import View, screen, troubles
from swe_rollout.cli.live import clock
from swe_rollout.cli.options import DisplayKind
from swe_rollout.cli.output import number
from swe_rollout.launcher.outcome import finished, summary_of
from swe_rollout.launcher.remote import deleted, follow

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from rich.console import Console

    from swe_rollout.cluster.job_objects import JobObject
    from swe_rollout.cluster.jobs import Jobs

_SCREEN_S = 1.0
_SUMMARY_S = 10.0


async def follow_to_the_end(
    jobs: Jobs, job: JobObject, *, display: DisplayKind, console: Console
) -> JobObject:
    """Show the job until it is complete; raises JobFailedError or JobRefusedError otherwise."""
    async with (
        _shown(display, View(job), console=console) as show,
        aclosing(follow(jobs, job)) as states,
    ):
        async for state in states:
            show(state)
            if finished(state):
                return state
    raise deleted(job)


@asynccontextmanager
async def _shown(
    kind: DisplayKind, view: View, *, console: Console
) -> AsyncIterator[Callable[[JobObject], None]]:
    """What to tell of each change, while the block runs."""
    if kind is DisplayKind.AUTO:
        kind = DisplayKind.RICH if console.is_terminal else DisplayKind.PLAIN
    match kind:
        case DisplayKind.RICH:
            live = Live(
                console=console,
                auto_refresh=False,
                redirect_stdout=sys.stdout.isatty(),
                get_renderable=lambda: screen(view),
            )
            with live:
                async with every(_SCREEN_S, live.refresh):
                    yield view.take
                live.refresh()
        case DisplayKind.PLAIN:
            plain = PlainView(view, console)
            async with every(_SUMMARY_S, plain.progress):
                yield plain.take
            plain.progress()
        case _:
            yield view.take


class PlainView:
    """A line when the job's state or its troubles change, and its progress now and then."""

    def __init__(self, view: View, console: Console) -> None:
        self._view = view
        self._console = console
        self._said: list[str] = []
        self._progress = ""

    def take(self, job: JobObject) -> None:
        """There is news."""
        self._view.take(job)
        lines = [logfmt("state", job=job.name, state=str(job.status.state))]
        lines += [
            logfmt("trouble", condition=str(c.type), reason=c.reason, message=c.message)
            for c in troubles(job)
        ]
        for line in lines:
            if line not in self._said:
                self._print(line)
        self._said = lines

    def progress(self) -> None:
        """Where the job is, when that is news."""
        counts = self._view.job.status.episodes
        line = logfmt(
            "progress",
            done=f"{counts.committed}/{counts.total}",
            running=counts.running,
            resolved=counts.resolved,
            masked=counts.masked,
            mean_reward=number(summary_of(self._view.job).mean_reward),
        )
        if line != self._progress:
            self._progress = line
            self._print(f"{line} elapsed={clock(self._view.elapsed_s)}")

    def _print(self, line: str) -> None:
        self._console.print(Text(line), soft_wrap=True)
