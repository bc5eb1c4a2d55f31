"""Follow a job that another process writes into a store, from the records that appear there.

It shows what can be seen in the store: an episode has started if it has a journal, and its turns
are known once it is committed. Whether the other process is still alive can't be seen.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from swe_rollout.cli.live_screen import SUMMARY_S, live_screen, resolve_display
from swe_rollout.cli.options import DisplayKind
from swe_rollout.cli.run_display import PlainRunLines
from swe_rollout.live.progress import LiveProgress, LiveTitle, every
from swe_rollout.live.snapshot import Count
from swe_rollout.store.layout import JobRef
from swe_rollout.store.store import Store
from swe_rollout.store.summary import JobTally

if TYPE_CHECKING:
    from rich.console import Console

    from swe_rollout.live.snapshot import Snapshot
    from swe_rollout.store.plan import Plan
    from swe_rollout.store.summary import JobSummary
    from swe_rollout.types.trajectory import Trajectory

LOCAL_POLL_S = 1.0
REMOTE_POLL_S = 5.0
_REST = 4.0
"""The pause after a slow reading, as a multiple of the time that the reading took."""


async def follow_stored(ref: JobRef, *, display: DisplayKind, console: Console) -> JobSummary:
    """Show the job until every planned episode is committed; return its summary.

    Raises UsageError if the store has no such job, UnreachableError if it does not respond.
    """
    watched = WatchedStore(Store.open(ref.store_uri), ref.job)
    await watched.read_plan()
    async with _open_display(display, watched, console):
        while True:
            began_s = time.monotonic()
            if await watched.poll():
                return await watched.tally.summary()
            await asyncio.sleep(rest_s(ref, time.monotonic() - began_s))


def rest_s(ref: JobRef, took_s: float) -> float:
    """Return the pause before the next reading of the store, given how long the last took."""
    poll_s = LOCAL_POLL_S if ref.store_uri.startswith("file://") else REMOTE_POLL_S
    return max(poll_s, _REST * took_s)


class WatchedStore:
    """Tracks a job's progress from its store."""

    def __init__(
        self, store: Store, job: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._job = job
        self._clock = clock
        self._sizes: dict[str, int] = {}
        self._planned = 0
        self._is_first = True
        self._last_commit_s: float | None = None
        self._begun = 0
        self.tally = JobTally(store, job)
        self.progress = LiveProgress(self.title, clock=clock)

    @property
    def title(self) -> LiveTitle:
        """Return the parts of the view that do not change."""
        return LiveTitle(self._job, (self._store.uri,), group_size=lambda i: self._sizes.get(i, 1))

    async def read_plan(self) -> Plan:
        """Read the plan, which may grow while the job runs."""
        plan = await self._store.plan(self._job)
        self._sizes = {each.id: each.samples for each in plan.instances}
        self._planned = plan.episodes
        return plan

    async def poll(self) -> bool:
        """Count newly committed episodes; return whether none is left to wait for."""
        plan = await self.read_plan()
        async for trajectory in self.tally.read_new():
            self._count(trajectory)
        if self._is_first:
            self.progress.planned(plan.episodes, self.progress.committed)
        self._is_first = False
        self.progress.planned_episodes = plan.episodes + plan.unplanned(self.tally.listed)
        journals = await self._store.journals(self._job).listed()
        self._begun = len(journals.keys() - self.tally.listed)
        return await self.tally.left(plan) == 0

    def snapshot(self) -> Snapshot:
        """Return the current state."""
        found = self.progress.snapshot()
        queued = max(found.total - found.committed - self._begun, 0)
        idle_s = None if self._last_commit_s is None else self._clock() - self._last_commit_s
        phases = (Count("queued", queued), Count("begun", self._begun))
        return replace(found, phases=phases, idle_s=idle_s)

    def _count(self, trajectory: Trajectory) -> None:
        now_s = self._clock()
        if self._is_first:
            self.progress.earlier(trajectory)
            ended_s = now_s - _age_s(trajectory)
            self._last_commit_s = max(self._last_commit_s or ended_s, ended_s)
        else:
            self.progress.done(trajectory)
            self._last_commit_s = now_s
        for turn in trajectory.turns:
            self.progress.count_turn(turn, is_new=not self._is_first)


@asynccontextmanager
async def _open_display(
    kind: DisplayKind, watched: WatchedStore, console: Console
) -> AsyncIterator[None]:
    match resolve_display(kind, console):
        case DisplayKind.RICH:
            async with live_screen(console, watched.snapshot):
                yield
        case DisplayKind.PLAIN:
            watched.progress = plain = PlainRunLines(console, watched.title)
            async with every(SUMMARY_S, plain.print_summary):
                yield
            plain.print_last_summary()
        case _:
            yield


def _age_s(trajectory: Trajectory) -> float:
    """Return how long ago an episode ended, by the clocks of both machines; 0 if unknown."""
    try:
        ended = datetime.fromisoformat(trajectory.finished_at)
        return max((datetime.now(UTC) - ended).total_seconds(), 0.0)
    except (ValueError, TypeError):
        return 0.0
