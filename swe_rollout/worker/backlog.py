"""The episodes of a job or of one worker's shard, and which of them are committed."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import chain
from types import MappingProxyType
from typing import TypeVar

from swe_rollout.context import Attempt, JobContext
from swe_rollout.errors import UsageError
from swe_rollout.spec.bounds import MAX_EPISODES
from swe_rollout.spec.job import RolloutJob
from swe_rollout.store.plans import Owner
from swe_rollout.store.refills import Refills
from swe_rollout.store.store import Store
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Instance
from swe_rollout.types.trajectory import TokenPath, Trajectory

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Shard:
    """The share of worker `index` of `count`: all samples of every `count`-th task."""

    index: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise ValueError(f"no worker {self.index} of {self.count}")

    def tasks(self, all_tasks: Sequence[_T]) -> tuple[_T, ...]:
        """Return this worker's tasks in order: every `count`-th, from `index` on."""
        return tuple(all_tasks[self.index :: self.count])

    def parallelism(self, of_job: int) -> int:
        """Return how many episodes this worker runs at a time when the job runs `of_job`.

        The result is at least 1, because no other worker has its tasks; so a job with more workers
        than parallelism runs one episode per worker.
        """
        return max(1, of_job // self.count + (self.index < of_job % self.count))


WHOLE = Shard()
"""The whole job."""

_AT_A_TIME = 100
"""Tasks planned before yielding to other work, such as the handling of ^C."""


@dataclass(frozen=True, slots=True)
class Episodes:
    """The first attempt of every sample of some tasks, enumerated lazily."""

    job: str
    tasks: tuple[Instance, ...]
    samples: int
    done: frozenset[EpisodeId] = frozenset()
    """Episodes to leave out."""
    is_backwards: bool = False
    """Whether to begin with the last."""
    replacements: AbstractSet[EpisodeId] = frozenset()
    """Samples that replace failed ones."""

    def __len__(self) -> int:
        return len(self.tasks) * self.samples + len(self.replacements) - len(self.done)

    def __iter__(self) -> Iterator[Attempt]:
        """Yield the attempts, keeping the samples of a task together."""
        step = -1 if self.is_backwards else 1
        more = defaultdict[str, list[int]](list)
        for each in self.replacements:
            more[each.instance].append(each.sample)
        for task in self.tasks[::step]:
            further = sorted(more.get(task.instance_id, ()))
            numbers = range(self.samples)[::step], further[::step]
            for sample in chain(*numbers[::step]):
                episode = EpisodeId(self.job, task.instance_id, sample)
                if episode not in self.done:
                    yield Attempt(episode, task, number=1)


@dataclass(frozen=True, slots=True)
class Backlog:
    """The episodes of a job, or of one worker's shard, done or not."""

    attempts: Episodes
    committed: frozenset[EpisodeId]
    """Episodes that have a stored trajectory."""
    notes: tuple[str, ...] = ()
    """Notes for people about the job that was already in the store."""
    graded: int = 0
    """Masked episodes that were graded again."""
    planned: int = 0
    """Samples of the whole job, those of other shards included, but no replacements."""
    refills: Refills = field(default_factory=lambda: Refills({}, 0))
    """The replacements for failed samples. `attempts` has all that are known: those of committed
    records are, once `worker.attempts.replaced` was called with each."""

    @property
    def todo(self) -> Episodes:
        """Return the attempts whose episodes have no stored trajectory."""
        known = frozenset(self.attempts.replacements)
        return replace(self.attempts, done=self.committed, replacements=known)


async def begin(
    store: Store,
    job: RolloutJob,
    instances: Sequence[Instance],
    shard: Shard = WHOLE,
    *,
    owner: Owner | None = None,
    quarantined: Mapping[str, str] = MappingProxyType({}),
    takes_code: bool = False,
    refills: int | None = None,
) -> Backlog:
    """Record the job in its store, unless another worker did, and list the shard's episodes.

    Workers divide the tasks in the order of the plan, which is the same for all of them and stays
    stable when the job grows. `quarantined` maps ids of skipped tasks to reasons; `refills` is how
    often this process replaces a failed sample, None if its caller decides. Raises UsageError
    when the store has another job of that name, or for more episodes than a job can have;
    UnreachableError when the store is down.
    """
    _check_size(len(instances), job.spec.samples)
    begun = await store.begin(
        job,
        await _digests(instances),
        owner=owner,
        quarantined=quarantined,
        takes_code=takes_code,
    )
    if refills is not None:
        await store.set_refills(job.metadata.name, refills)
    order = begun.plan.order()
    ordered = sorted(instances, key=lambda instance: order[instance.instance_id])
    tasks = shard.tasks(ordered)
    names, samples = {task.instance_id for task in tasks}, job.spec.samples
    # The plan's number of samples, not this run's, counts: it is the same for all processes.
    sizes = {each.id: each.samples for each in begun.plan.instances if each.id in names}
    rule = Refills(sizes, refills or 0)
    committed = frozenset(
        episode
        for episode in await store.committed(job.metadata.name)
        if episode.instance in names
        and (episode.sample < samples or rule.holds(episode, samples=samples))
    )
    found = Refills(sizes, refills or 0, committed)
    episodes = Episodes(job.metadata.name, tasks, samples, replacements=found.known)
    planned = len(instances) * samples
    return Backlog(episodes, committed, begun.notes, planned=planned, refills=found)


async def _digests(instances: Sequence[Instance]) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, instance in enumerate(instances):
        if number % _AT_A_TIME == 0:
            await asyncio.sleep(0)
        found[instance.instance_id] = instance.digest
    return found


def _check_size(tasks: int, samples: int) -> None:
    if tasks * samples > MAX_EPISODES:
        raise UsageError(
            f"the job has too many episodes: {tasks} tasks × {samples} samples",
            why=f"a job has at most {MAX_EPISODES}",
            fix="lower spec.samples, or divide the tasks among jobs with spec.dataset.slice",
        )


@dataclass(frozen=True, slots=True)
class Sampler:
    """What sampled an episode: the engine's model, and the tokenizer used with it."""

    episode: EpisodeId
    policy: str
    tokens: TokenPath | None

    @classmethod
    def of(cls, trajectory: Trajectory) -> Sampler:
        """Read the sampler from a trajectory."""
        return cls(trajectory.episode, trajectory.policy, trajectory.token_path)

    def require_same(self, context: JobContext) -> None:
        """Raise UsageError if the engine of `context` has another model or tokenizer."""
        now, renderer = context.policy(self.episode), context.agent.renderer
        changes = []
        if self.policy != now:
            changes.append(f"the model is {now} now, it was {self.policy}")
        if self.tokens and renderer and self.tokens.fingerprint != renderer.fingerprint:
            changes.append(f"tokenizer or chat template are not those of {self.episode}")
        if changes:
            raise UsageError(
                f"the trajectories of {self.episode.job} were sampled by another policy",
                why="; ".join(changes),
                fix="call an engine that serves that model, or give this job another "
                "metadata.name, or another store.uri",
            )
