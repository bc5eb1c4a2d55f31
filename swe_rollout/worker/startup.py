"""Start a worker: from its job's spec to a scheduler with its shard of the episodes.

Start-up waits for each service, with its condition unmet meanwhile; that is not an error.
`cluster_worker` runs and ends the worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog

from swe_rollout.agent.off_loop import settled_heap
from swe_rollout.cluster.objects import OwnerReference
from swe_rollout.datasets.base import LoadedDataset
from swe_rollout.errors import PrerequisiteError, SweRolloutError, gather_all
from swe_rollout.events import Events, Planned, Subscriber
from swe_rollout.sandbox.base import SandboxProvider
from swe_rollout.spec.job import RolloutJob
from swe_rollout.spec.sandbox import SandboxSpec
from swe_rollout.spec.status import ConditionType
from swe_rollout.store.damage import RERUN, DamagedRecord
from swe_rollout.store.plans import Owner
from swe_rollout.store.store import Store
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Instance
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.worker.assembly import assemble
from swe_rollout.worker.attempts import replaced
from swe_rollout.worker.backlog import Backlog, Sampler, Shard, begin
from swe_rollout.worker.extensions import import_extensions
from swe_rollout.worker.failure_budget import CountedBefore
from swe_rollout.worker.harnesses import with_bundle
from swe_rollout.worker.progress_report import ShardProgress
from swe_rollout.worker.resume import ResumableEpisodes, open_journals
from swe_rollout.worker.sandboxes import SandboxSetup, open_sandboxes
from swe_rollout.worker.scheduler import EpisodeScheduler
from swe_rollout.worker.service_health import (
    STORE_PATIENCE_S,
    Conditions,
    EngineMonitor,
    StoreMonitor,
)
from swe_rollout.worker.start_guard import GuardedSandboxes
from swe_rollout.worker.stored_tasks import load_noted

log = structlog.get_logger()

_READ_AHEAD = 8
_END_S = 3.0
"""How long a stopping worker spends on ending sandboxes; the rest end themselves."""


@dataclass(frozen=True, slots=True)
class WorkerResources:
    """Everything a worker needs to schedule its shard, except the engine."""

    store: Store
    instances: Sequence[Instance]
    """The tasks of the whole job."""
    backlog: Backlog
    sandboxes: SandboxProvider
    progress: ShardProgress
    """The shard's progress, including the commits of its earlier workers."""
    journals: ResumableEpisodes | None = None
    """Journals of running episodes; None if the job disables them."""
    samplers: tuple[Sampler, ...] = ()
    """The samplers of the episodes that earlier workers committed."""


@dataclass(frozen=True, slots=True)
class WorkerStartup:
    """Brings up one worker of a job."""

    job: RolloutJob
    """The job, as returned by `on_cluster`."""
    shard: Shard
    owner: OwnerReference
    """The job's object; the pods are deleted with it."""
    store_owner: Owner
    """Claims the job in its store."""
    conditions: Conditions
    """Updated while start-up waits for a service."""
    is_wanted: Callable[[], Awaitable[bool]]
    """Whether the job still exists and is not suspended; called after a sandbox is lost."""
    observer: Subscriber | None = None
    """Receives every event of the shard, in addition to the progress report."""
    on_progress: Callable[[], None] | None = None
    """Called whenever this worker makes a turn durable or commits an episode."""

    async def resources(self, stack: AsyncExitStack) -> WorkerResources:
        """List the backlog and open the sandboxes once the store and the cluster respond.

        `stack` ends the sandboxes. Raises errors that concern the whole job.
        """
        store = Store.open(self.job.spec.store.uri)
        store.observe(StoreMonitor(self.conditions))
        loaded = await self.conditions.until_reached(ConditionType.STORAGE_READY, self._load)
        instances = loaded.instances
        beginning = partial(
            begin,
            store,
            self.job,
            instances,
            self.shard,
            owner=self.store_owner,
            quarantined=loaded.quarantined,
            refills=self.job.spec.retry.refills,
        )
        backlog = await self.conditions.until_reached(ConditionType.STORAGE_READY, beginning)
        for note in backlog.notes:
            _note(note)
        progress, samplers = await self._counted(store, backlog)
        sandboxes = self._sandboxes(instances, stack)
        opening = partial(open_journals, store, self.job, backlog, on_turn=self.on_progress)
        journals = await self.conditions.until_reached(ConditionType.STORAGE_READY, opening)
        # The shard has no other worker, so a predecessor left whatever still runs for it. Resumed
        # episodes check their own sandboxes.
        kept = journals.unplayed if journals else frozenset[EpisodeId]()
        episodes = {attempt.episode for attempt in backlog.attempts} - kept
        await self.conditions.until_reached(
            ConditionType.SANDBOXES_READY, partial(sandboxes.delete_orphans, episodes)
        )
        if journals is not None:
            stack.push_async_callback(_end_unplayed, journals, sandboxes)
        return WorkerResources(store, instances, backlog, sandboxes, progress, journals, samplers)

    async def scheduler(
        self, resources: WorkerResources, stack: AsyncExitStack
    ) -> EpisodeScheduler:
        """Create a scheduler of size 0 with the backlog queued, once the engine responds."""
        assembling = partial(
            assemble,
            self.job,
            resources.instances,
            sandboxes=resources.sandboxes,
            publish=Events(resources.progress, self.observer),
            on_note=_note,
            stack=stack,
            logs=resources.store,
            workers=self.shard.count,
        )
        context = await self.conditions.until_reached(ConditionType.MODEL_READY, assembling)
        for sampler in resources.samplers:
            sampler.require_same(context)
        engine = EngineMonitor(context.agent.engine, self.conditions, is_wanted=self.is_wanted)
        await stack.enter_async_context(engine.watching())
        scheduler = EpisodeScheduler(
            context,
            resources.store,
            budget=self.job.spec.failure_budget,
            size=0,
            services=engine,
            journals=resources.journals,
            before=self._counted_before(resources),
            refills=resources.backlog.refills,
        )
        scheduler.add(resources.backlog.todo)
        stack.enter_context(settled_heap())
        return scheduler

    def _counted_before(self, resources: WorkerResources) -> CountedBefore:
        counts = resources.progress.snapshot(running=0, finished=False)
        others = counts.planned - (counts.episodes.total - counts.episodes.replaced)
        return CountedBefore(counts.episodes.committed, counts.episodes.masked, others)

    async def _load(self) -> LoadedDataset:
        await import_extensions(self.job)
        return await load_noted(self.job.spec.tasks, base_dir=Path.cwd(), on_note=_note)

    def _sandboxes(self, instances: Sequence[Instance], stack: AsyncExitStack) -> GuardedSandboxes:
        setup = SandboxSetup(
            instances,
            self.job.metadata.name,
            _note,
            harmless=self.job.spec.policy.scripted is not None,
            owner=self.owner,
            on_start_warning=partial(self.conditions.fail, ConditionType.SANDBOXES_READY),
        )
        provider = open_sandboxes(with_bundle(self.job.spec), setup, stack)
        return GuardedSandboxes(
            provider, self.conditions, patience_s=STORE_PATIENCE_S, marks_each=True
        )

    async def _counted(
        self, store: Store, backlog: Backlog
    ) -> tuple[ShardProgress, tuple[Sampler, ...]]:
        """Count the commits of the shard's earlier workers, and collect their samplers."""
        progress = ShardProgress(self.conditions, job=backlog.planned, on_commit=self.on_progress)
        samplers = list[Sampler]()
        publish = Events(progress, self.observer)
        publish(Planned(len(backlog.attempts), len(backlog.committed)))
        progress.replaced_before(len(backlog.refills.known))
        committed = sorted(backlog.committed, key=str)
        for start in range(0, len(committed), _READ_AHEAD):
            reading = partial(_read, store, committed[start : start + _READ_AHEAD])
            for record in await self.conditions.until_reached(ConditionType.STORAGE_READY, reading):
                if isinstance(record, DamagedRecord):
                    log.warning("damaged_record_found", record=str(record), fix=RERUN)
                    progress.damaged()
                else:
                    replaced(record, backlog.refills, publish)
                    progress.earlier(record)
                    samplers.append(Sampler.of(record))
        return progress, tuple(samplers)


def on_cluster(job: RolloutJob, namespace: str) -> RolloutJob:
    """Place the job's sandboxes in its own namespace, where its object can own them.

    Raises PrerequisiteError if the sandboxes are not pods or are in another namespace.
    """
    if job.spec.sandbox.backend is not None:
        return job
    pod = job.spec.sandbox.pod
    if pod is None:
        raise PrerequisiteError(
            "a worker on a cluster has no local sandboxes",
            why="agents would run beside the worker's own credentials",
            fix="write `sandbox: {pod: {}}`",
        )
    if pod.namespace not in (None, namespace):
        raise PrerequisiteError(
            "the sandboxes' namespace is not the job's",
            why=f"spec.sandbox.pod.namespace is {pod.namespace}, the job is in {namespace}",
            fix="remove the field, and create the job in that namespace",
        )
    pod = pod.model_copy(update={"namespace": namespace, "context": None})
    spec = job.spec.model_copy(update={"sandbox": SandboxSpec(pod=pod)})
    return job.model_copy(update={"spec": spec})


async def _read(
    store: Store, episodes: Sequence[EpisodeId]
) -> tuple[Trajectory | DamagedRecord, ...]:
    return await gather_all([store.record(episode) for episode in episodes])


async def _end_unplayed(journals: ResumableEpisodes, sandboxes: SandboxProvider) -> None:
    """End the sandboxes of episodes that this worker would have resumed."""
    if not journals.unplayed:
        return
    try:
        async with asyncio.timeout(_END_S):
            await sandboxes.delete_orphans(journals.unplayed)
    except (SweRolloutError, TimeoutError) as error:
        log.warning("orphans_not_deleted", why=str(error))


def _note(text: str) -> None:
    log.info("note", text=text)
