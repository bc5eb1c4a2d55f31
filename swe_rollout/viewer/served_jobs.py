"""Jobs that are read from their store while somebody looks at them.

Each request begins to read what is new, at most once in a while, so a page that nobody looks at
reads nothing. Rows are kept encoded, at most `MOST_ROWS` of all jobs together.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

import msgspec

from swe_rollout.errors import SweRolloutError
from swe_rollout.export.job_comparison import JobSide
from swe_rollout.store.store import Store
from swe_rollout.store.summary import JobTally
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.viewer.data import encoded, episode_record, packed, row_of
from swe_rollout.viewer.page import PageJob, counts, damages, tools_of
from swe_rollout.viewer.token_text import find_texts

MOST_ROWS: Final = 100_000
"""The most rows in memory; of a longer job, the others are counted only."""
_SENT: Final = 5_000
"""The most rows in one response."""
_NAMED: Final = 100
"""The most running episodes that are named."""
_PAUSE_S: Final = 2.0
_REST: Final = 4.0
"""The pause after a slow reading, as a multiple of the time that the reading took."""


class Reading:
    """Repeats some work when it is asked to: one at a time, with pauses."""

    def __init__(self, work: Callable[[], Coroutine[object, object, None]]) -> None:
        self._work = work
        self._task: asyncio.Task[None] | None = None
        self._next_s = 0.0

    @property
    def is_running(self) -> bool:
        """Whether the work is under way."""
        return self._task is not None and not self._task.done()

    def refresh(self) -> None:
        """Begin the work, unless it is under way or was done a moment ago."""
        if time.monotonic() >= self._next_s:
            self._begin()

    async def finish(self) -> None:
        """Do the work now, or wait for its end."""
        await self._begin()

    def _begin(self) -> asyncio.Task[None]:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return self._task

    async def _run(self) -> None:
        began_s = time.monotonic()
        try:
            await self._work()
        finally:
            now_s = time.monotonic()
            self._next_s = now_s + max(_PAUSE_S, _REST * (now_s - began_s))

    async def stop(self) -> None:
        """Cancel the work."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


class ServedJob:
    """A job whose rows grow while it is viewed."""

    def __init__(
        self,
        store: Store,
        page: PageJob,
        job: Mapping[str, Any] = MappingProxyType({}),
        *,
        number: int,
        tokenizer: str | None = None,
    ) -> None:
        """Start without rows; `job` is the resolved job in the plan."""
        self.store = store
        self.page = page
        """The job without its rows; complete once it was read to its end."""
        self.number = number
        self.reading = Reading(self._read)
        self.viewed_s = 0.0
        self.generation = 0
        """Changes when the rows begin anew, because records were removed."""
        self.rows: list[msgspec.Raw] = []
        self.listed = 0
        """The number of episodes that the store had when it was read last."""
        self._job = job
        self._tokenizer = tokenizer
        self._running: tuple[tuple[str, int], ...] = ()
        """The names of episodes that are not committed, and how often each has saved its work."""
        self._tally = JobTally(store, page.name)
        self.side = JobSide(job)
        """The job as one side of a comparison."""

    async def _read(self) -> None:
        """Read new episodes to make their rows, and summarise the job."""
        try:
            async for trajectory in self._tally.read_new():
                self._add(trajectory)
            if not self._tally.episodes <= self._tally.listed:
                self.forget()
                return
            summary = self._tally.counted(await self.store.plan(self.page.name))
            begun = await self.store.journals(self.page.name).listed()
        except SweRolloutError as error:
            self.page = replace(self.page, complete=True, damaged=(str(error),))
            return
        self.listed = len(self._tally.listed)
        running = sorted(begun.keys() - self._tally.listed, key=lambda e: (e.instance, e.sample))
        self._running = tuple(
            (f"{each.instance}/{each.sample}", begun[each].chunks) for each in running
        )
        self.page = replace(
            self.page, complete=True, summary=counts(summary), damaged=damages(summary)
        )

    def _add(self, trajectory: Trajectory) -> None:
        self.side.add(trajectory)
        if len(self.rows) < MOST_ROWS:
            self.rows.append(msgspec.Raw(encoded(row_of(trajectory, self._path(trajectory)))))

    def _path(self, trajectory: Trajectory) -> str:
        return f"episode/{self.number}/{trajectory.episode.instance}/{trajectory.episode.sample}"

    def forget(self) -> None:
        """Drop all rows; they are read again when the job is viewed. The numbers stay."""
        self.generation += 1
        self.rows = []
        self.side = JobSide(self._job)
        self._tally = JobTally(self.store, self.page.name)
        self.page = replace(self.page, complete=False)

    def news(self, generation: int, start: int, comparison: object) -> str:
        """Return, packed, rows from `start` on and the state of the job; begin to read on."""
        self.viewed_s = time.monotonic()
        self.reading.refresh()
        page = self.page
        start = start if generation == self.generation else 0
        end = start + _SENT
        return packed(
            {
                "generation": self.generation,
                "start": start,
                "rows": self.rows[start:end],
                "more": end < len(self.rows),
                "complete": page.complete,
                "summary": page.summary,
                "damaged": page.damaged,
                "running": self._running[:_NAMED],
                "running_count": len(self._running),
                "comparison": comparison,
            }
        )

    async def record(self, episode: EpisodeId) -> str:
        """Return the packed record of an episode. Raises the errors of `Store.read`."""
        trajectory = await self.store.read(episode)
        texts = find_texts(self._tokenizer, self._job, trajectory.policy)
        return packed(episode_record(trajectory, texts))


@dataclass(slots=True)
class _Counted:
    """The numbers of committed and planned episodes of a job, from its listing."""

    committed: int
    episodes: int
    begun: int
    """Episodes that have a journal and are not committed."""
    begun_at: float
    """When the job was begun, in seconds since 1970."""
    changed_s: float | None = None
    """When the first number was seen to change; None if it was not."""


@dataclass(slots=True)
class ServedStore:
    """All jobs of a store. They are listed first, then read one by one for their numbers."""

    store: Store
    address: str
    """The address of the store, as the command line accepts it."""
    tokenizer: str | None = None
    jobs: list[ServedJob] = field(default_factory=list)
    """In the order in which they were found; a number never names another job."""
    problems: list[str] = field(default_factory=list)
    """Why the store, or one of its jobs, can't be read now."""
    _counted: dict[str, _Counted] = field(default_factory=dict)

    async def read(self) -> None:
        """List the jobs and count their episodes, then read the jobs that have grown."""
        problems: list[str] = []
        try:
            names = await self.store.jobs()
        except SweRolloutError as error:
            self.problems = [str(error)]
            return
        for gone in self._counted.keys() - set(names):
            del self._counted[gone]
        for name in names:
            try:
                await self._count(name)
            except (SweRolloutError, FileNotFoundError) as error:
                problems.append(f"{name}: {error}")
        self.problems = problems[:_NAMED]
        for job in reversed(self.jobs):  # the newest are more often the last
            counted = self._counted.get(job.page.name)
            if counted is None or (job.page.summary and counted.committed == job.listed):
                continue
            if job.rows or self._row_count < MOST_ROWS:
                await job.reading.finish()

    async def _count(self, name: str) -> None:
        plan = await self.store.plan(name)
        episodes = (await self.store.listing(name)).episodes
        before = self._counted.get(name)
        at = before.begun_at if before else (await self.store.begun_at(name)).timestamp()
        found = _Counted(len(episodes), plan.episodes + plan.unplanned(episodes), 0, at)
        if found.committed < found.episodes:
            found.begun = len((await self.store.journals(name).listed()).keys() - episodes)
            if before is not None:
                is_same = before.committed == found.committed
                found.changed_s = before.changed_s if is_same else time.monotonic()
        self._counted[name] = found
        if all(job.page.name != name for job in self.jobs):
            page = PageJob(name, f"{self.address}/{name}", tools=tools_of(plan.job))
            page = replace(page, complete=False)
            number, tokenizer = len(self.jobs), self.tokenizer
            self.jobs.append(
                ServedJob(self.store, page, plan.job, number=number, tokenizer=tokenizer)
            )

    @property
    def _row_count(self) -> int:
        return sum(len(job.rows) for job in self.jobs)

    def make_room(self, viewed: ServedJob) -> None:
        """Forget the jobs that were not viewed for longest while there are too many rows."""
        for job in sorted(self.jobs, key=lambda each: each.viewed_s):
            if self._row_count <= MOST_ROWS:
                return
            if job is not viewed and not job.reading.is_running:
                job.forget()

    def news(self) -> str:
        """Return, packed, the jobs with their numbers."""
        now_s = time.monotonic()
        listed = [
            {
                "index": job.number,
                "name": job.page.name,
                "address": job.page.address,
                "tools": job.page.tools,
                "committed": counted.committed,
                "episodes": counted.episodes,
                "begun": counted.begun,
                "begun_at": counted.begun_at,
                "changed_s": None if counted.changed_s is None else now_s - counted.changed_s,
                "summary": job.page.summary,
            }
            for job in self.jobs
            if (counted := self._counted.get(job.page.name)) is not None
        ]
        return packed({"jobs": listed, "problems": self.problems})
