"""The screen of a job on the cluster: a fixed number of lines, made of the operator's status."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Group as Lines
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from swe_rollout.cli.live import clock, cut
from swe_rollout.cli.output import number
from swe_rollout.launcher.outcome import summary_of
from swe_rollout.spec.status import ConditionType
from swe_rollout.viewer.visible import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from swe_rollout.cluster.job_objects import JobObject
    from swe_rollout.spec.status import Condition

_BAR_WIDTH = 30
_OUTCOME_ROWS = 5
_GOOD_WHEN_FALSE = (ConditionType.SUSPENDED, ConditionType.FAILED, ConditionType.COMPLETE)


@dataclass(slots=True)
class View:
    """The newest state of a job, and how fast it went since it is watched."""

    job: JobObject
    watched_since: float = field(default_factory=time.monotonic)
    committed_before: int | None = None

    def take(self, job: JobObject) -> None:
        """There is news."""
        self.job = job
        if self.committed_before is None:
            self.committed_before = job.status.episodes.committed

    @property
    def per_minute(self) -> float | None:
        """Episodes committed per minute while it was watched; none before the first."""
        done = self.job.status.episodes.committed - (self.committed_before or 0)
        return 60 * done / max(time.monotonic() - self.watched_since, 1.0) if done > 0 else None

    @property
    def eta_s(self) -> float | None:
        """Seconds to the end at this rate."""
        counts, rate = self.job.status.episodes, self.per_minute
        return None if rate is None else 60 * (counts.total - counts.committed) / rate

    @property
    def elapsed_s(self) -> float:
        """Seconds since the job began."""
        begun, ended = self.job.status.start_time, self.job.status.completion_time
        if begun is None:
            return 0.0
        end = datetime.fromisoformat(ended) if ended else datetime.now(UTC)
        return max((end - datetime.fromisoformat(begun)).total_seconds(), 0.0)


def troubles(job: JobObject) -> Iterator[Condition]:
    """The conditions that stand in the way right now."""
    for condition in job.status.conditions:
        if condition.type in _GOOD_WHEN_FALSE:
            if condition.status == "True" and condition.type is not ConditionType.COMPLETE:
                yield condition
        elif condition.status == "False":
            yield condition


@dataclass(frozen=True, slots=True)
class OutcomeCount:
    """Episodes that ended the same way."""

    name: str
    episodes: int


def outcomes(job: JobObject) -> list[OutcomeCount]:
    """How episodes ended and what failed, the most frequent first."""
    counts = [*job.status.stop_reasons.items(), *job.status.failures.items()]
    return [OutcomeCount(*each) for each in sorted(counts, key=lambda each: -each[1])]


def screen(view: View) -> RenderableType:
    """The whole view: the same number of lines whatever happens."""
    job = view.job
    eta = view.eta_s
    head = Text.assemble(
        (f"rolloutjob/{one_line(job.name)}", "bold"),
        f"   {job.status.state}   {one_line(job.status.policy)}   {clock(view.elapsed_s)}",
        "" if eta is None else f"   eta ~{clock(eta)}",
    )
    facts = Table.grid(padding=(0, 2))
    facts.add_row(Text("episodes", "dim"), _episodes(view))
    facts.add_row(Text("reward", "dim"), _reward(job))
    facts.add_row(Text("trouble", "dim"), _trouble(job))
    return Lines(cut(head), Text(), facts, Text(), _outcomes(job))


def _episodes(view: View) -> RenderableType:
    counts, rate = view.job.status.episodes, view.per_minute
    pending = max(counts.total - counts.committed - counts.running, 0)
    words = [
        f"{counts.committed}/{counts.total}",
        "" if rate is None else f"{rate:.1f}/min",
        f"{counts.running} running · {pending} pending",
    ]
    row = Table.grid(padding=(0, 2))
    bar = ProgressBar(total=max(counts.total, 1), completed=counts.committed, width=_BAR_WIDTH)
    row.add_row(bar, cut(Text("   ".join(filter(None, words)))))
    return row


def _reward(job: JobObject) -> Text:
    counts = job.status.episodes
    words = [
        f"mean {number(summary_of(job).mean_reward)}",
        f"resolved {counts.resolved}/{counts.resolved + counts.unresolved}",
        f"masked {counts.masked}" if counts.masked else "",
    ]
    return cut(Text("   ".join(filter(None, words))))


def _trouble(job: JobObject) -> Text:
    words = [f"{each.reason}: {each.message}" for each in troubles(job)]
    return cut(Text(one_line(" · ".join(words)) or "none", "red" if words else ""))


def _outcomes(job: JobObject) -> Table:
    """The most frequent ends of episodes; always as many lines."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("OUTCOME", no_wrap=True, min_width=16)
    table.add_column("EPISODES", justify="right", no_wrap=True)
    rows = outcomes(job)[:_OUTCOME_ROWS]
    for row in rows:
        table.add_row(Text(one_line(row.name)), str(row.episodes))
    for _ in range(_OUTCOME_ROWS - len(rows)):
        table.add_row("", "")
    return table
