"""Play the groups of a job while a trainer takes them, staying a bounded number ahead.

Each episode is played and committed as in `run_job`, and a sample that failed for good is replaced
by another of its task, so a failure costs a sample, not the group.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import structlog

from swe_rollout.context import Attempt, JobContext
from swe_rollout.engine.base import TokenEngine
from swe_rollout.errors import UsageError, cancel_all, unwrapped
from swe_rollout.events import Committed, Event, Planned, Subscriber
from swe_rollout.spec.job import RolloutJob
from swe_rollout.store.claims import Claimant
from swe_rollout.store.damage import DamagedRecord
from swe_rollout.store.store import Store
from swe_rollout.training.assembly import Assembly
from swe_rollout.training.group_source import GroupSource, Handout, Watch
from swe_rollout.training.groups import Group
from swe_rollout.training.sample_bounds import FailureRate, Staleness
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Instance
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.worker.attempts import replaced
from swe_rollout.worker.backlog import Backlog, Sampler, begin
from swe_rollout.worker.job import in_time
from swe_rollout.worker.job_lock import running_here
from swe_rollout.worker.resume import ResumableEpisodes, open_journals
from swe_rollout.worker.scheduler import EpisodeScheduler
from swe_rollout.worker.service_health import LOCAL_PATIENCE_S
from swe_rollout.worker.session import open_session

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """How a trainer takes the groups of a job."""

    claimant: Claimant
    trained: tuple[str, ...] = ()
    """Groups in the trainer's checkpoint, whether or not they were acknowledged."""
    ahead: int | None = None
    """Groups that may be in play or waiting beyond those taken; by default, enough to keep
    `spec.parallelism` busy while one waits."""
    refills: int | None = None
    """How often a failed sample is replaced; by default `spec.retry.refills`."""
    staleness: Staleness | None = None

    def __post_init__(self) -> None:
        refills = self.refills or 0
        if (self.ahead is not None and self.ahead < 1) or not 0 <= refills <= _MOST_REFILLS:
            raise UsageError(
                "the groups can't be streamed so",
                why=f"ahead={self.ahead}, refills={refills}",
                fix=f"use ahead of at least 1, and from 0 to {_MOST_REFILLS} refills",
            )


_MOST_REFILLS = 100


@dataclass(slots=True)
class _OpenGroup:
    """A group in play."""

    task: Instance
    assembly: Assembly


class LiveGroups(GroupSource):
    """The groups of a job in this process, in order of completion. `play` plays them."""

    def __init__(
        self,
        job: RolloutJob,
        backlog: Backlog,
        context: JobContext,
        store: Store,
        handout: Handout,
        *,
        ahead: int,
        journals: ResumableEpisodes | None = None,
    ) -> None:
        super().__init__(handout)
        self._job = job
        self._context = context
        self._store = store
        self._ahead = ahead
        self._backlog = backlog
        self._committed: dict[str, list[EpisodeId]] = {}
        self._open: dict[str, _OpenGroup] = {}
        self._ready: deque[Group] = deque()
        self._begun = 0
        self._taken = 0
        self._all_begun = False
        self._changed = asyncio.Event()
        self._playing: asyncio.Task[None] | None = None
        self._scheduler = EpisodeScheduler(
            replace(context, publish=self._publish),
            store,
            budget=job.spec.failure_budget,
            size=0 if job.spec.suspend else job.spec.parallelism,
            journals=journals,
            refills=backlog.refills,
        )

    @asynccontextmanager
    async def play(self) -> AsyncIterator[None]:
        """Play the groups while the block runs; then cancel whatever is not committed."""
        self._playing = asyncio.create_task(self._play_in_time(), name="groups")
        self._playing.add_done_callback(lambda _: self._notify())
        try:
            yield
        finally:
            await cancel_all(self._playing)

    async def next(self) -> Group | None:
        """Return the next group to be complete; None after the last one.

        Raises whatever stopped the job: BudgetSpentError, FailureRateError, DeadlineExceededError.
        """
        while True:
            if self._playing is None:
                raise UsageError("the stream is not open", fix="use `async with` or `with`")
            if self._playing.cancelled():
                return None
            if self._playing.done():
                self._playing.result()
            if (found := await self._kept_group()) is not None:
                return found
            if self._ready:
                if (found := await self._finished(self._take(self._ready.popleft()))) is not None:
                    return found
            elif self._playing.done():
                return None
            else:
                await self._changed.wait()

    async def _take(self, group: Group) -> Group | None:
        self._taken += 1
        self._notify()
        claim = await self._handout.claims.claim(group.instance)
        return None if claim is None else await self._handout.offer(group, claim)

    async def _play_in_time(self) -> None:
        with unwrapped():
            await in_time(self._play(), self._job.spec.active_deadline_seconds)

    async def _play(self) -> None:
        for episode in await self._store.committed(self._job.metadata.name):
            self._committed.setdefault(episode.instance, []).append(episode)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._begin_groups())
            group.create_task(self._work())

    async def _begin_groups(self) -> None:
        for task in self._backlog.attempts.tasks:
            if self._handout.claims.is_free(task.instance_id):
                while self._begun - self._taken >= self._ahead:
                    await self._changed.wait()
                await self._begin(task)
        self._all_begun = True
        self._notify()

    async def _begin(self, task: Instance) -> None:
        """Read a group's stored samples, and queue the missing ones."""
        name = f"{self._job.metadata.name}/{task.instance_id}"
        rule = self._backlog.refills
        wanted = rule.size(task.instance_id)
        found = _OpenGroup(task, Assembly(name, wanted=wanted, refills=rule.limit))
        async for record in self._store.records(self._committed.pop(task.instance_id, ())):
            if not isinstance(record, DamagedRecord):
                Sampler.of(record).require_same(self._context)
                replaced(record, self._backlog.refills, self._context.publish)
            _add(found.assembly, record)
        if found.assembly.missing() and self._job.spec.suspend:
            return
        self._begun += 1
        self._open[task.instance_id] = found
        episode = partial(EpisodeId, self._job.metadata.name, task.instance_id)
        self._scheduler.add([Attempt(episode(n), task, 1) for n in found.assembly.missing()])
        self._go_on(found)

    def _publish(self, event: Event) -> None:
        self._context.publish(event)
        if isinstance(event, Committed):
            self._done(event.trajectory)

    def _done(self, trajectory: Trajectory) -> None:
        """Take a committed sample; the scheduler replaces it if it failed."""
        found = self._open.get(trajectory.episode.instance)
        if found is not None:
            found.assembly.add(trajectory)
            self._go_on(found)

    def _go_on(self, found: _OpenGroup) -> None:
        if not found.assembly.missing():
            del self._open[found.task.instance_id]
            self._ready.append(found.assembly.group())
        self._notify()

    async def _work(self) -> None:
        while not self._all_begun or self._open:
            changed = self._changed
            await self._scheduler.work()
            await self._add_damaged()
            if self._scheduler.left == 0 and (not self._all_begun or self._open):
                await changed.wait()

    async def _add_damaged(self) -> None:
        """Look for samples that another process committed and that can't be read."""
        for found in tuple(self._open.values()):
            name = self._job.metadata.name, found.task.instance_id
            for sample in found.assembly.missing() if not self._scheduler.left else ():
                _add(found.assembly, await self._store.record(EpisodeId(*name, sample)))
                self._go_on(found)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


@asynccontextmanager
async def open_groups(
    job: RolloutJob,
    options: StreamOptions,
    *,
    base_dir: Path,
    publish: Subscriber,
    on_note: Callable[[str], None],
    engine: TokenEngine | None = None,
) -> AsyncIterator[LiveGroups]:
    """Open a job and play its groups while the block runs. For arguments see `open_session`.

    Stored samples are not played again. Raises UsageError if another process here plays the job.
    """
    store = Store.open(job.spec.store.uri)
    opened = open_session(
        job,
        base_dir=base_dir,
        publish=publish,
        on_note=on_note,
        engine=engine,
        logs=store,
        start_patience_s=LOCAL_PATIENCE_S,
    )
    async with running_here(job, join=False), opened as session:
        refills = job.spec.retry.refills if options.refills is None else options.refills
        backlog = await begin(
            store, job, session.instances, quarantined=session.quarantined, refills=refills
        )
        for note in backlog.notes:
            on_note(note)
        claims = store.claims(job.metadata.name, options.claimant)
        watch = Watch(FailureRate(job.spec.failure_budget.max_masked_fraction), options.staleness)
        handout = Handout(job.metadata.name, claims, watch)
        await handout.begin(options.trained)
        session.context.publish(Planned(len(backlog.attempts), len(backlog.committed)))
        committed = frozenset(await store.committed(job.metadata.name))
        await session.context.sandboxes.delete_orphans(committed)
        live = LiveGroups(
            job,
            backlog,
            session.context,
            store,
            handout,
            ahead=options.ahead or -(-job.spec.parallelism // job.spec.samples) + 1,
            journals=await open_journals(store, job, replace(backlog, committed=committed)),
        )
        async with live.play():
            yield live


def _add(assembly: Assembly, record: Trajectory | DamagedRecord) -> None:
    if isinstance(record, DamagedRecord):
        log.warning("damaged_record_left_out", object=record.address, why=record.why)
        assembly.add_damaged(record)
    else:
        assembly.add(record)
