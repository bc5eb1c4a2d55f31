"""Displays: how a run is shown. A live screen on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from rich.live import Live
from rich.text import Text

from swe_rollout.cli.live import clock, screen
from swe_rollout.cli.options import DisplayKind
from swe_rollout.cli.output import number
from swe_rollout.cli.tally import Tally, outcome_name
from swe_rollout.viewer.visible import one_line

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from rich.console import Console

    from swe_rollout.cli.live import Title
    from swe_rollout.progress import Progress
    from swe_rollout.trajectory import EpisodeId, Failure, Trajectory

_SCREEN_S = 0.25
_SUMMARY_S = 10.0


@asynccontextmanager
async def open_display(
    kind: DisplayKind, *, title: Title, console: Console
) -> AsyncIterator[Progress]:
    """A display of `kind`, drawn on `console` until the block ends."""
    if kind is DisplayKind.AUTO:
        kind = DisplayKind.RICH if console.is_terminal else DisplayKind.PLAIN
    match kind:
        case DisplayKind.RICH:
            tally = Tally()
            live = Live(
                console=console,
                auto_refresh=False,
                redirect_stdout=sys.stdout.isatty(),
                get_renderable=lambda: screen(tally, title),
            )
            with live:
                async with every(_SCREEN_S, live.refresh):
                    yield tally
        case DisplayKind.PLAIN:
            plain = PlainLines(console)
            async with every(_SUMMARY_S, plain.summary):
                yield plain
            plain.summary()
        case _:
            yield Tally()


@asynccontextmanager
async def every(seconds: float, act: Callable[[], None]) -> AsyncIterator[None]:
    """Call `act` again and again while the block runs."""

    async def tick() -> None:
        while True:
            await asyncio.sleep(seconds)
            act()

    ticker = asyncio.create_task(tick())
    try:
        yield
    finally:
        ticker.cancel()
        with suppress(asyncio.CancelledError):
            await ticker


class PlainLines(Tally):
    """One line for each finished episode, and a summary now and then: for logs and pipes."""

    __slots__ = ("_console",)

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def planned(self, episodes: int, committed: int) -> None:
        """Say how much there is to do."""
        super().planned(episodes, committed)
        self._line("planned", episodes=episodes, committed=committed)

    def retried(self, episode: EpisodeId, failure: Failure, attempt: int) -> None:
        """Say what broke, and that it is tried again."""
        super().retried(episode, failure, attempt)
        self._line("retried", episode=episode, attempt=attempt, failure=failure.message)

    def done(self, trajectory: Trajectory) -> None:
        """Say how an episode ended."""
        super().done(trajectory)
        reward = trajectory.reward
        verdict = trajectory.verdict
        self._line(
            "episode_done",
            episode=trajectory.episode,
            outcome=outcome_name(trajectory),
            verdict=verdict.status if verdict else None,
            reward=None if reward is None else f"{reward.value:g}",
            turns=len(trajectory.turns),
            tokens=len(trajectory.token_ids),
            seconds=f"{trajectory.timing.total_s:.1f}",
            failure=trajectory.failure.message if trajectory.failure else None,
        )

    def summary(self) -> None:
        """Where the job is."""
        self._line(
            "progress",
            done=f"{self.done_episodes}/{self.episodes}",
            running=len(self.running),
            resolved=self.resolved,
            masked=self.masked,
            mean_reward=number(self.mean_reward),
            elapsed=clock(self.elapsed_s),
        )

    def _line(self, event: str, **facts: object) -> None:
        self._console.print(Text(logfmt(event, **facts)), soft_wrap=True)


def logfmt(event: str, **facts: object) -> str:
    """An event and its facts on one line; facts that are none are left out."""
    return " ".join([event, *(_pair(k, v) for k, v in facts.items() if v is not None)])


def _pair(key: str, value: object) -> str:
    text = one_line(str(value))
    if any(character in text for character in ' "='):
        text = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"{key}={text}"
