"""Run a whole job in this process: play the remaining episodes, commit each once.

`run_job` implements `swe-rollout run`. It knows nothing about terminals: it publishes events, and
passes notes for people to a callback. On a cluster, `cluster_worker` runs one shard.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from swe_rollout.errors import SweRolloutError
from swe_rollout.events import FoundCommitted, Planned, Subscriber
from swe_rollout.spec.job import RolloutJob
from swe_rollout.store.damage import DamagedRecord
from swe_rollout.store.store import Store
from swe_rollout.store.summary import JobSummary, JobTally
from swe_rollout.worker import rerun
from swe_rollout.worker.attempts import replaced
from swe_rollout.worker.backlog import Backlog, Sampler, begin
from swe_rollout.worker.failure_budget import CountedBefore
from swe_rollout.worker.job_lock import running_here
from swe_rollout.worker.resume import open_journals
from swe_rollout.worker.scheduler import EpisodeScheduler, Others
from swe_rollout.worker.service_health import LOCAL_PATIENCE_S, EngineMonitor, StoreMonitor
from swe_rollout.worker.session import Session, open_session


class DeadlineExceededError(SweRolloutError):
    """The job's own deadline passed; committed episodes stay."""


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What a run found and did, and the job's state in its store afterwards."""

    job: JobSummary
    """The summary that `swe-rollout status` shows."""
    asked: int
    """Episodes that should be committed after this run."""
    earlier: int
    """Episodes committed before this run."""
    ran: int
    """Episodes that this run rolled out."""
    left: int
    """Episodes that have no readable trajectory now."""
    graded: int = 0
    """Episodes among the earlier ones that this run graded again."""
    elsewhere: int = 0
    """Episodes that another process committed during this run."""

    def to_json(self) -> bytes:
        """Return the job's summary as one JSON object, with this run's counts under `run`."""
        run = {
            "episodes": self.asked,
            "already_committed": self.earlier,
            "ran": self.ran,
            "left": self.left,
            **({"graded_again": self.graded} if self.graded else {}),
            **({"ran_elsewhere": self.elsewhere} if self.elsewhere else {}),
        }
        return msgspec.json.encode({**self.job.to_dict(), "run": run})

    def __str__(self) -> str:
        """Summarise the run in one sentence."""
        if self.asked == self.earlier and not self.graded:
            return f"nothing ran: all {self.asked} episodes were already committed"
        left = f", {self.left} left" if self.left else ""
        earlier = f"{self.earlier} already committed"
        earlier += f" ({self.graded} graded again)" if self.graded else ""
        now = f"{self.ran} ran now"
        now += f", {self.elsewhere} by another run" if self.elsewhere else ""
        return f"{self.asked} episodes: {earlier}, {now}{left}"


async def run_job(
    job: RolloutJob,
    *,
    base_dir: Path,
    publish: Subscriber,
    on_note: Callable[[str], None],
    rerun_damaged: bool = False,
    rerun_masked: bool = False,
    join: bool = False,
) -> RunSummary:
    """Roll out every episode that the job's store does not hold yet; return a summary.

    Relative dataset paths start at `base_dir`. With `rerun_damaged`, unreadable records are moved
    aside and run again; with `rerun_masked`, masked ones, and user code may have changed. With
    `join`, another process here may run the job. Raises UsageError, PrerequisiteError or
    UnreachableError at first, and later BudgetSpentError or UnreachableError (store).
    """
    store = Store.open(job.spec.store.uri)
    async with (
        running_here(job, join=join) as has_joined,
        open_session(
            job,
            base_dir=base_dir,
            publish=publish,
            on_note=on_note,
            logs=store,
            start_patience_s=LOCAL_PATIENCE_S,
        ) as session,
    ):
        if has_joined:
            on_note("another process runs this job: this one begins with its last episodes")
        store.observe(StoreMonitor(session.conditions))
        backlog = await _begin(
            session, store, on_note, rerun_damaged=rerun_damaged, rerun_masked=rerun_masked
        )
        publish(Planned(len(backlog.attempts), len(backlog.committed)))
        tally = JobTally(store, job.metadata.name)
        before = CountedBefore()
        async for trajectory in tally.read_new():
            if trajectory.episode in backlog.committed:
                Sampler.of(trajectory).require_same(session.context)
                replaced(trajectory, backlog.refills, publish)
                publish(FoundCommitted(trajectory))
                before = before.and_one(trajectory)
        ran, elsewhere = await _run(session, store, backlog, before, on_note, has_joined=has_joined)
    summary = await tally.summary()
    left = sum(attempt.episode not in tally.episodes for attempt in backlog.attempts)
    return RunSummary(
        summary, len(backlog.attempts), before.finished, ran, left, backlog.graded, elsewhere
    )


async def _begin(
    session: Session,
    store: Store,
    on_note: Callable[[str], None],
    *,
    rerun_damaged: bool,
    rerun_masked: bool,
) -> Backlog:
    """Record the job in its store and list its episodes, with those to do that are run again."""
    backlog = await begin(
        store,
        session.job,
        session.instances,
        quarantined=session.quarantined,
        takes_code=rerun_masked,
        refills=session.job.spec.retry.refills,
    )
    for note in backlog.notes:
        on_note(note)
    if rerun_masked:
        backlog = await rerun.rerun_masked(session, store, backlog, on_note)
    if not rerun_damaged:
        return backlog
    committed = set(backlog.committed)
    async for record in store.records(backlog.committed):
        if isinstance(record, DamagedRecord):
            address = await store.set_aside(record.episode)
            on_note(f"{record}; moved to {address}")
            committed.remove(record.episode)
    return replace(backlog, committed=frozenset(committed))


async def _run(
    session: Session,
    store: Store,
    backlog: Backlog,
    before: CountedBefore,
    on_note: Callable[[str], None],
    *,
    has_joined: bool,
) -> tuple[int, int]:
    """Roll out the rest of the backlog; return the numbers of episodes played here and elsewhere.

    A process that has joined another begins at the other end.
    """
    spec, context = session.job.spec, session.context
    if spec.suspend:
        on_note("spec.suspend is true: no episode is started")
        return 0, 0
    journals = await open_journals(store, session.job, backlog)
    engine = EngineMonitor(
        context.agent.engine,
        session.conditions,
        engine_patience_s=LOCAL_PATIENCE_S,
        store_patience_s=LOCAL_PATIENCE_S,
    )
    scheduler = EpisodeScheduler(
        context,
        store,
        budget=spec.failure_budget,
        size=spec.parallelism,
        services=engine,
        journals=journals,
        before=before,
        others=Others.PLAYING if has_joined else Others.POSSIBLE,
        refills=backlog.refills,
    )
    if len(backlog.todo):
        await context.sandboxes.delete_orphans(backlog.committed)
        scheduler.add(replace(backlog.todo, is_backwards=has_joined))
        async with engine.watching():
            await in_time(scheduler.work(), spec.active_deadline_seconds)
    scheduler.check_budget()
    return len(backlog.todo) - scheduler.left - scheduler.elsewhere, scheduler.elsewhere


async def in_time(work: Awaitable[None], deadline_s: float | None) -> None:
    """Await the work of a job. Raises DeadlineExceededError when the job's time is up."""
    try:
        async with asyncio.timeout(deadline_s):
            await work
    except TimeoutError as error:
        raise DeadlineExceededError(
            "the job's time is over",
            why=f"spec.activeDeadlineSeconds is {deadline_s:g}",
            fix="run it again to go on where it stopped, or raise the deadline",
        ) from error
