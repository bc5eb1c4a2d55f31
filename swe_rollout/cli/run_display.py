"""Display a run in this process: a live screen on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from rich.text import Text

from swe_rollout.cli.live_screen import SUMMARY_S, live_screen, resolve_display
from swe_rollout.cli.options import DisplayKind
from swe_rollout.events import Phase
from swe_rollout.live.progress import LiveProgress, every, outcome_name
from swe_rollout.text.formatting import (
    format_duration,
    format_number,
    format_share,
    logfmt,
)

if TYPE_CHECKING:
    from rich.console import Console

    from swe_rollout.errors import SweRolloutError
    from swe_rollout.live.progress import LiveTitle
    from swe_rollout.types.episode import EpisodeId, Failure
    from swe_rollout.types.trajectory import Trajectory

LINES_AT_ONCE = 100
LINES_PER_S = 5.0


@asynccontextmanager
async def open_run_display(
    kind: DisplayKind, *, title: LiveTitle, console: Console
) -> AsyncIterator[LiveProgress]:
    """Show a display of `kind` on `console` until the block ends."""
    match resolve_display(kind, console):
        case DisplayKind.RICH:
            progress = LiveProgress(title)
            async with live_screen(console, progress.snapshot):
                yield progress
        case DisplayKind.PLAIN:
            plain = PlainRunLines(console, title)
            async with every(SUMMARY_S, plain.print_summary):
                yield plain
            plain.print_last_summary()
        case _:
            yield LiveProgress(title)


class PlainRunLines(LiveProgress):
    """Prints a line for each finished episode and periodic summaries: for logs and pipes.

    Episodes that end faster than a log should grow get no line; the next summary counts them.
    """

    def __init__(
        self,
        console: Console,
        title: LiveTitle | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(title, clock=clock)
        self._console = console
        self._allowance = float(LINES_AT_ONCE)
        self._allowed_s = clock()
        self._left_out = 0
        self._is_planned = False
        self._summarised: dict[str, object] = {}
        self._waiting = ""
        """Why the store takes nothing now, such as a full disk."""

    def planned(self, episodes: int, committed: int) -> None:
        """Print the size of the job."""
        super().planned(episodes, committed)
        self._is_planned = True
        self._print("planned", episodes=episodes, committed=committed)

    def replaced(self, failed: EpisodeId, by: EpisodeId) -> None:
        """Print that a sample failed for good, and which one takes its place."""
        super().replaced(failed, by)
        if self._may_print():
            self._print("replaced", episode=failed, by=by)

    def retried(self, episode: EpisodeId, failure: Failure, attempt: int) -> None:
        """Print that an attempt failed."""
        super().retried(episode, failure, attempt)
        if self._may_print():
            self._print("retried", episode=episode, attempt=attempt, failure=failure.message)

    def done(self, trajectory: Trajectory) -> None:
        """Print the outcome of an episode."""
        super().done(trajectory)
        self._waiting = ""
        if self._may_print():
            self._console.print(Text(episode_line(trajectory)), soft_wrap=True)

    def store_failed(self, error: SweRolloutError) -> None:
        """Name the reason on each progress line until an episode is committed."""
        self._waiting = str(error)

    def print_summary(self) -> None:
        """Print the job's progress, even if unchanged, once the job is planned."""
        if not (self._is_planned or self.committed):
            return
        self._summarised = self._summary()
        elapsed = format_duration(round(self.elapsed_s))
        left_out = self._left_out or None
        facts = {"elapsed": elapsed, "lines_left_out": left_out, "waiting": self._waiting or None}
        self._print("progress", **self._summarised, **facts)
        self._left_out = 0

    def print_last_summary(self) -> None:
        """Print the job's progress unless the last summary already showed it."""
        if self._left_out or self._summary() != self._summarised:
            self.print_summary()

    def _summary(self) -> dict[str, object]:
        counts, grading = self.counts, list(self.running.values()).count(Phase.GRADE)
        return {
            "done": f"{self.committed}/{self.planned_episodes}",
            "running": len(self.running) - grading,
            "grading": grading,
            "awaiting_cache": self.awaiting_cache or None,
            "resolved": counts.resolved,
            "masked": counts.masked,
            "mean_reward": format_number(counts.mean_reward),
            "masked_share": format_share(counts.masked, counts.committed),
        }

    def _may_print(self) -> bool:
        """Whether another line may be logged now."""
        now_s = self._clock()
        earned = (now_s - self._allowed_s) * LINES_PER_S
        self._allowance, self._allowed_s = min(LINES_AT_ONCE, self._allowance + earned), now_s
        if self._allowance < 1:
            self._left_out += 1
            return False
        self._allowance -= 1
        return True

    def _print(self, event: str, **facts: object) -> None:
        self._console.print(Text(logfmt(event, **facts)), soft_wrap=True)


def episode_line(trajectory: Trajectory) -> str:
    """Format the outcome of an episode as one log line."""
    reward, verdict, failure = trajectory.reward, trajectory.verdict, trajectory.failure
    return logfmt(
        "episode_done",
        episode=trajectory.episode,
        outcome=outcome_name(trajectory),
        verdict=verdict.status if verdict else None,
        reward=None if reward is None else f"{reward.value:g}",
        turns=len(trajectory.turns),
        tokens=trajectory.token_count,
        time=format_duration(trajectory.timing.total_s),
        failure=failure.message if failure else None,
    )
