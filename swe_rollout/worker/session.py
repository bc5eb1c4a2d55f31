"""A job opened in this process: its tasks and the resources that its episodes share.

`run_job` runs all of its episodes; a program that plays single episodes, such as a trainer, opens a
session itself. Every trainer adapter builds on `Session.run_episode`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Self

from swe_rollout.agent.off_loop import settled_heap
from swe_rollout.agent.renderer import Renderer
from swe_rollout.context import Attempt, JobContext
from swe_rollout.engine.base import TokenEngine
from swe_rollout.episode import run_episode
from swe_rollout.errors import UsageError, gather_all
from swe_rollout.events import Subscriber
from swe_rollout.grading.run import LogKeeper
from swe_rollout.spec.job import RolloutJob, RolloutJobSpec
from swe_rollout.spec.limits import FailureBudget
from swe_rollout.spec.policy import Sampling
from swe_rollout.store.store import Store
from swe_rollout.training.assembly import Assembly
from swe_rollout.training.groups import Group
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Instance
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.worker.assembly import assemble
from swe_rollout.worker.attempts import play_attempts
from swe_rollout.worker.backlog import Sampler, begin
from swe_rollout.worker.extensions import import_extensions
from swe_rollout.worker.harnesses import with_bundle
from swe_rollout.worker.resume import ResumableEpisodes, open_journals
from swe_rollout.worker.sandboxes import SandboxSetup, open_sandboxes
from swe_rollout.worker.scheduler import EpisodeScheduler
from swe_rollout.worker.service_health import Conditions
from swe_rollout.worker.start_guard import GuardedSandboxes
from swe_rollout.worker.stored_tasks import load_noted


class Session:
    """The tasks of a job, and the resources for playing them."""

    def __init__(
        self,
        job: RolloutJob,
        instances: Sequence[Instance],
        context: JobContext,
        *,
        quarantined: Mapping[str, str] = MappingProxyType({}),
        first_sample: int = 0,
        conditions: Conditions | None = None,
    ) -> None:
        """`quarantined` maps the ids of skipped tasks to reasons.

        Samples without a number from the caller are numbered from `first_sample`. `conditions`
        holds the services that are down.
        """
        self.job = job
        self.instances = tuple(instances)
        self.quarantined = quarantined
        self.context = context
        self.conditions = conditions or Conditions()
        self._by_id = {each.instance_id: each for each in self.instances}
        self._places = asyncio.Semaphore(job.spec.parallelism)
        self._first_sample = first_sample
        self._next_sample: dict[str, int] = {}
        self._playing: set[EpisodeId] = set()
        self._stored: StoredEpisodes | None = None

    def __repr__(self) -> str:
        return f"<Session of {self.job.metadata.name}: {len(self.instances)} tasks>"

    @property
    def engine(self) -> TokenEngine:
        """The token engine. Raises InternalError if the policy is a chat API."""
        return self.context.agent.tokens.engine

    @property
    def renderer(self) -> Renderer:
        """The renderer for the engine's model. Raises InternalError like `engine`."""
        return self.context.agent.tokens.renderer

    async def commit_to(self, store: Store) -> None:
        """Commit each record from now on, as `run` does, and take up what the store has.

        Raises UsageError if the store has another job of that name, UnreachableError if it is down.
        """
        self._stored = await StoredEpisodes.open(store, self)

    def new_samples(self, instance_id: str, count: int = 1) -> int:
        """Reserve `count` unused sample numbers; return the first."""
        first = self._next_sample.get(instance_id, self._first_sample)
        self._next_sample[instance_id] = first + count
        return first

    async def run_episode(
        self,
        instance: Instance | str,
        *,
        sample: int | None = None,
        sampling: Sampling | None = None,
    ) -> Trajectory:
        """Play one episode of a task and return its record.

        Nothing is stored, unless the session commits its records: then a stored one is returned,
        and an episode that a killed process was playing goes on at its last turn.

        Failed attempts are retried according to `spec.retry`; the record's `failure` holds the last
        error. At most `spec.parallelism` episodes are played concurrently; others wait. `sample` is
        the number of the sample, by default the next one unused in this session. `sampling`
        replaces `spec.sampling`. Raises UsageError for an unknown id and for an episode that is
        already being played.
        """
        found = self.instance(instance) if isinstance(instance, str) else instance
        number = self.new_samples(found.instance_id) if sample is None else sample
        if number < 0:
            raise UsageError(f"there is no sample {number}", fix="count samples from 0")
        episode = EpisodeId(self.job.metadata.name, found.instance_id, number)
        if episode in self._playing:
            raise UsageError(
                f"{episode} is being played",
                fix="leave `sample` out, or give each episode of a task a number of its own",
            )
        following = self._next_sample.get(found.instance_id, self._first_sample)
        self._next_sample[found.instance_id] = max(following, number + 1)
        context = self.context if sampling is None else replace(self.context, sampling=sampling)
        self._playing.add(episode)
        try:
            async with self._places:
                first = Attempt(episode, found, number=1)
                if self._stored is not None:
                    return await self._stored.play(first, context)
                return await play_attempts(first, partial(run_episode, context=context), context)
        finally:
            self._playing.remove(episode)

    async def run_group(
        self,
        instance: Instance | str,
        *,
        samples: int | None = None,
        refills: int | None = None,
        sampling: Sampling | None = None,
    ) -> Group:
        """Play a group of samples of one task, `spec.samples` by default, as `run_episode` does.

        A sample that failed for good is replaced, up to `refills` times, by default
        `spec.retry.refills`; after that, the group is short. Samples get numbers unused in this
        session. Raises the errors of `run_episode`.
        """
        found = self.instance(instance) if isinstance(instance, str) else instance
        wanted = self.job.spec.samples if samples is None else samples
        refills = self.job.spec.retry.refills if refills is None else refills
        if wanted < 1 or refills < 0:
            raise UsageError(
                f"a group of {wanted} samples with {refills} refills can't be played",
                why="a group has at least one sample, and no fewer than 0 refills",
                fix="leave samples out for those of the job, or raise it",
            )
        first = self.new_samples(found.instance_id, wanted * (1 + refills))
        name = EpisodeId(self.job.metadata.name, found.instance_id, first).group
        group = Assembly(name, wanted=wanted, refills=refills, first=first)

        async def fill(sample: int) -> None:
            """Play a sample and, if it fails, its replacements."""
            while sample in group.missing():
                group.add(await self.run_episode(found, sample=sample, sampling=sampling))
                sample += wanted

        await gather_all(fill(first + place) for place in range(wanted))
        return group.group()

    def instance(self, instance_id: str) -> Instance:
        """Return a task. Raises UsageError for an unknown id."""
        if (found := self._by_id.get(instance_id)) is not None:
            return found
        names = [each.instance_id for each in self.instances]
        close = get_close_matches(instance_id, names, n=1)
        raise UsageError(
            f"the job has no task {instance_id}",
            why=f"it has {len(names)}: {', '.join(names[:_MOST_NAMED])}"
            + " …" * (len(names) > _MOST_NAMED),
            fix=f"did you mean {close[0]}?" if close else "name one of these, or widen `include`",
        )


_MOST_NAMED = 5
_ANY_NUMBER = 2**63


@dataclass(frozen=True, slots=True)
class StoredEpisodes:
    """The episodes of a session in its job's store: committed ones, and journals of others."""

    store: Store
    journals: ResumableEpisodes | None

    @classmethod
    async def open(cls, store: Store, session: Session) -> Self:
        """Record the session's job in the store, and find the journals of earlier processes."""
        job = session.job
        backlog = await begin(store, job, session.instances, quarantined=session.quarantined)
        committed = await store.committed(job.metadata.name)
        await session.context.sandboxes.delete_orphans(committed)
        everything = replace(backlog, committed=committed)
        return cls(store, await open_journals(store, job, everything, samples=_ANY_NUMBER))

    async def play(self, first: Attempt, context: JobContext) -> Trajectory:
        """Return the stored record of an episode, or play it and commit its record."""
        if (found := await self.store.find(first.episode)) is not None:
            Sampler.of(found).require_same(context)
            return found
        # Whoever plays single episodes decides how many failures are too many.
        budget = FailureBudget(max_masked_fraction=1.0)
        scheduler = EpisodeScheduler(
            context, self.store, budget=budget, size=1, journals=self.journals
        )
        return await scheduler.play(first)


def _require_scripted_tasks(
    spec: RolloutJobSpec, instances: Sequence[Instance], on_note: Callable[[str], None]
) -> None:
    """Raise UsageError if a script is for a task that is not there: another would play its part."""
    scripts = spec.policy.scripted.tasks if spec.policy.scripted is not None else {}
    names = [each.instance_id for each in instances]
    unknown = [name for name in scripts if name not in names]
    if not unknown:
        return
    close = get_close_matches(unknown[0], names, n=1)
    meant = f"; did you mean {close[0]}?" if close else ""
    what = f"spec.policy.scripted.tasks has turns for {unknown[0]}, which the dataset does not have"
    if spec.dataset.include or spec.dataset.exclude:
        on_note(f"warning: {what}{meant}")
        return
    raise UsageError(
        what,
        why=f"it has {', '.join(names[:_MOST_NAMED])}{' …' if names[_MOST_NAMED:] else ''}{meant}",
        fix="name a task of the dataset",
    )


@asynccontextmanager
async def open_session(
    job: RolloutJob,
    *,
    base_dir: Path,
    publish: Subscriber,
    on_note: Callable[[str], None],
    engine: TokenEngine | None = None,
    first_sample: int = 0,
    logs: LogKeeper | None = None,
    start_patience_s: float | None = None,
) -> AsyncIterator[Session]:
    """Open the dataset, sandboxes, engine and grader of a job while the block runs.

    Relative dataset paths start at `base_dir`. `engine` replaces the one that `spec.policy` names,
    and stays open; `first_sample` is as in `Session`. `logs` keeps test output: the store, if
    records are stored. If sandboxes fail to start, further starts wait for up to
    `start_patience_s`; if it is None, they don't, and the caller handles each failure. `publish`
    receives every event. Raises UsageError, PrerequisiteError or UnreachableError.
    """
    spec = job.spec
    await import_extensions(job)
    loaded = await load_noted(spec.tasks, base_dir=base_dir, on_note=on_note)
    _require_scripted_tasks(spec, loaded.instances, on_note)
    conditions = Conditions(on_note)
    # The caller's own engine may serve a model, whatever the policy names.
    harmless = spec.policy.scripted is not None and engine is None
    setup = SandboxSetup(loaded.instances, job.metadata.name, on_note, harmless=harmless)
    async with AsyncExitStack() as stack:
        sandboxes = open_sandboxes(with_bundle(spec), setup, stack)
        if start_patience_s is not None:
            sandboxes = GuardedSandboxes(sandboxes, conditions, patience_s=start_patience_s)
        context = await assemble(
            job,
            loaded.instances,
            sandboxes=sandboxes,
            publish=publish,
            on_note=on_note,
            stack=stack,
            engine=engine,
            logs=logs,
        )
        stack.enter_context(settled_heap())
        yield Session(
            job,
            loaded.instances,
            context,
            quarantined=loaded.quarantined,
            first_sample=first_sample,
            conditions=conditions,
        )
