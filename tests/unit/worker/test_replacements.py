"""Workers keep groups whole: kills at each step, two at once, the budget, jobs that grow."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from swe_rollout.context import Attempt, JobContext
from swe_rollout.errors import UsageError
from swe_rollout.events import Committed, Event, SampleReplaced
from swe_rollout.spec.limits import FailureBudget, RetrySpec
from swe_rollout.store.claims import Claimant
from swe_rollout.store.store import Store
from swe_rollout.training.group_source import Handout, Watch
from swe_rollout.training.groups import Group
from swe_rollout.training.sample_bounds import FailureRate
from swe_rollout.training.stored_groups import StoredGroups
from swe_rollout.types.episode import EpisodeId, Failure
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.worker import scheduler as scheduler_module
from swe_rollout.worker.attempts import replaced
from swe_rollout.worker.backlog import Backlog, begin
from swe_rollout.worker.failure_budget import BudgetSpentError
from swe_rollout.worker.rerun import masked_records
from swe_rollout.worker.scheduler import EpisodeScheduler, Others
from unit.worker.test_startup import startup_of
from unit.worker.work_parts import TASK, job
from unit.worker.worker_parts import LOST, NO_IMAGE, Listener, Shared, context, trajectory

Fails = Callable[[EpisodeId], Failure | None]


class Killed(BaseException):
    """Stands for SIGKILL: no handler of ours sees it."""


@dataclass
class Policy:
    """Plays samples, of which some fail; dies before or after it plays the given one."""

    fails: Fails
    dies_before: int | None = None
    dies_after: int | None = None
    played: list[int] = field(default_factory=list)

    async def run_episode(self, attempt: Attempt, context: JobContext) -> Trajectory:  # noqa: ARG002
        number = attempt.episode.sample
        await asyncio.sleep(0)
        if number == self.dies_before:
            raise Killed
        self.played.append(number)
        if number == self.dies_after:
            raise Killed
        return trajectory(attempt, failure=self.fails(attempt.episode))


@dataclass
class DyingListener(Listener):
    """Dies when it hears of an event of a kind about a sample."""

    dies_at: tuple[type[Event], int] | None = None

    def __call__(self, event: Event) -> None:
        super().__call__(event)
        match event:
            case SampleReplaced(failed, _) if self.dies_at == (SampleReplaced, failed.sample):
                raise Killed
            case Committed(record) if self.dies_at == (Committed, record.episode.sample):
                raise Killed


def attempt_of(sample: int) -> Attempt:
    return Attempt(EpisodeId("demo", "a", sample), TASK, 1)


def failing(*samples: int, by: Failure = LOST) -> Fails:
    return lambda episode: by if episode.sample in samples else None


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(f"file://{tmp_path}/runs")


async def begun(store: Store, samples: int = 4, *, refills: int = 2) -> Backlog:
    return await begin(store, job(samples=samples), [TASK], refills=refills)


@dataclass
class Life:
    """One life of a worker: it counts what is committed, then plays what is left."""

    store: Store
    policy: Policy
    publish: Listener = field(default_factory=Listener)
    budget: FailureBudget = field(default_factory=lambda: FailureBudget(max_masked_fraction=1))
    size: int = 1
    others: Others = Others.NONE

    async def play(self, backlog: Backlog, monkeypatch: pytest.MonkeyPatch) -> EpisodeScheduler:
        monkeypatch.setattr(scheduler_module, "run_episode", self.policy.run_episode)
        shared = Shared(self.publish, RetrySpec(attempts=1, backoff_seconds=0.001))
        scheduler = EpisodeScheduler(
            context(shared),
            self.store,
            budget=self.budget,
            size=self.size,
            refills=backlog.refills,
            others=self.others,
        )
        async for record in self.store.records(sorted(backlog.committed, key=str)):
            assert isinstance(record, Trajectory)
            replaced(record, backlog.refills, self.publish)
        scheduler.add(backlog.todo)
        await scheduler.work()
        return scheduler


async def committed(store: Store) -> list[int]:
    return sorted(each.sample for each in await store.committed("demo"))


async def group_of(store: Store) -> Group:
    handout = Handout("demo", store.claims("demo", Claimant("t")), Watch(FailureRate(1)))
    await handout.begin(())
    group = await StoredGroups(store, "demo", handout, wait_s=0).next()
    assert group is not None
    return group


async def test_a_failed_sample_is_replaced_at_once_and_the_group_has_exactly_n(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = Policy(failing(1, 5))
    life = Life(store, policy)
    await life.play(await begun(store), monkeypatch)

    assert policy.played == [0, 1, 5, 9, 2, 3]
    assert await committed(store) == [0, 1, 2, 3, 5, 9]
    found = await group_of(store)
    assert [each.episode.sample for each in found.trajectories] == [0, 9, 2, 3]
    assert (found.is_short, len(found.failed)) == (False, 2)
    replaced = [(e.failed.sample, e.by.sample) for e in life.publish.of(SampleReplaced)]
    assert replaced == [(1, 5), (5, 9)]
    failed = [await store.read(EpisodeId("demo", "a", n)) for n in (1, 5)]
    assert all(each.reward is None and each.failure for each in failed), "never reward 0"


async def test_nothing_that_would_fail_again_is_replaced_and_nothing_without_end(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await Life(store, Policy(failing(1, by=NO_IMAGE))).play(await begun(store), monkeypatch)
    assert await committed(store) == [0, 1, 2, 3]
    other = Store.open(f"{store.uri}-other")
    await Life(other, Policy(lambda _: LOST)).play(await begun(other), monkeypatch)
    assert await committed(other) == list(range(12))


STEPS = {
    "before it failed": (Policy(failing(1), dies_before=1), DyingListener()),
    "before its failure was committed": (Policy(failing(1), dies_after=1), DyingListener()),
    "before it was replaced": (Policy(failing(1)), DyingListener(dies_at=(SampleReplaced, 1))),
    "once its failure was committed": (Policy(failing(1)), DyingListener(dies_at=(Committed, 1))),
    "before its replacement": (Policy(failing(1), dies_before=5), DyingListener()),
    "after its replacement": (Policy(failing(1), dies_after=5), DyingListener()),
    "once all was committed": (Policy(failing(1)), DyingListener(dies_at=(Committed, 5))),
}


@pytest.mark.parametrize("step", STEPS)
async def test_a_worker_killed_at_any_step_leaves_nothing_lost_or_doubled(
    store: Store, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    policy, listener = STEPS[step]
    with pytest.raises(Killed):
        await Life(store, policy, listener).play(await begun(store), monkeypatch)
    before = await committed(store)
    assert before, "the step was not reached"

    second = Life(store, Policy(failing(1)))
    backlog = await begun(store)
    scheduler = await second.play(backlog, monkeypatch)

    assert scheduler.left == 0
    assert await committed(store) == [0, 1, 2, 3, 5]
    assert sorted([*before, *second.policy.played]) == [0, 1, 2, 3, 5], "none is played again"
    assert len(backlog.attempts) == 5
    assert not (await group_of(store)).is_short
    assert len((await begun(store)).todo) == 0


async def test_two_workers_of_one_shard_commit_a_replacement_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker cut off from the API server may go on while its successor runs."""
    lives = [Life(store, Policy(failing(0, 1)), size=4) for _ in range(2)]
    backlogs = [await begun(store) for _ in lives]
    # Both call the same function, so one policy plays for both.
    await asyncio.gather(
        *(life.play(each, monkeypatch) for life, each in zip(lives, backlogs, strict=True))
    )
    assert await committed(store) == [0, 1, 2, 3, 4, 5]
    assert [each.refills.known for each in backlogs] == [
        {EpisodeId("demo", "a", 4), EpisodeId("demo", "a", 5)}
    ] * 2
    assert Counter(each.episode.sample for life in lives for each in life.publish.told) == Counter(
        dict.fromkeys(range(6), 2)
    )
    found = await group_of(store)
    assert [each.episode.sample for each in found.trajectories] == [4, 5, 2, 3]


async def test_a_sample_that_was_replaced_is_not_run_again_beside_its_replacement(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await Life(store, Policy(failing(0, 1, 5, 9, 3, by=LOST))).play(
        await begun(store, refills=1), monkeypatch
    )
    assert await committed(store) == [0, 1, 2, 3, 4, 5, 7]
    again = [each async for each in masked_records(store, await begun(store, refills=1))]
    assert [each.episode.sample for each in again] == [5]


async def test_what_another_worker_committed_decides_whether_a_sample_is_replaced(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    backlog = await begun(store)
    for number, failure in ((0, None), (1, LOST)):
        await store.commit(trajectory(attempt_of(number), failure=failure))
    # Here it is the other way round, but these records come too late.
    policy = Policy(failing(0))
    await Life(store, policy).play(backlog, monkeypatch)
    assert await committed(store) == [0, 1, 2, 3, 5]
    assert policy.played == [0, 1, 2, 3, 5], "the other worker plays its replacement at once"


@pytest.mark.parametrize("is_ended", [True, False])
async def test_what_another_worker_replaced_is_not_played_here_too(
    store: Store, monkeypatch: pytest.MonkeyPatch, *, is_ended: bool
) -> None:
    class Beside(Policy):
        async def run_episode(self, attempt: Attempt, context: JobContext) -> Trajectory:
            if is_ended and attempt.episode.sample == 3:
                await store.commit(trajectory(attempt_of(5)))
            return await super().run_episode(attempt, context)

    async def chunks(scheduler: EpisodeScheduler, episode: EpisodeId) -> int:
        del scheduler
        return await store.commit(trajectory(attempt_of(episode.sample)))

    monkeypatch.setattr(EpisodeScheduler, "_chunks", chunks)
    monkeypatch.setattr(scheduler_module, "OWNER_POLL_S", 0)
    backlog, policy = await begun(store), Beside(failing())
    await store.commit(trajectory(attempt_of(1), failure=LOST))
    await Life(store, policy, others=Others.POSSIBLE).play(backlog, monkeypatch)
    assert policy.played == [0, 2, 3]
    assert await committed(store) == [0, 1, 2, 3, 5]


async def test_replacements_count_for_the_failure_budget_and_end_with_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = Policy(lambda _: LOST)
    with pytest.raises(BudgetSpentError, match="3 of 3 episodes were masked"):
        await Life(store, policy, budget=FailureBudget()).play(
            await begun(store, samples=50), monkeypatch
        )
    assert policy.played == [0, 50, 100]


async def test_a_job_that_grew_takes_replacements_for_samples_and_replaces_by_its_new_size(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await Life(store, Policy(failing(0))).play(await begun(store, 2), monkeypatch)
    assert await committed(store) == [0, 1, 2]
    policy = Policy(failing())
    await Life(store, policy).play(await begun(store, 4), monkeypatch)
    assert policy.played == [3, 4], "sample 2 is one of four now, and 4 replaces 0"
    assert [e.episode.sample for e in (await group_of(store)).trajectories] == [4, 1, 2, 3]
    smaller = await begun(store, 2)
    assert len(smaller.todo) == 0
    assert sorted(each.sample for each in smaller.committed) == [0, 1, 4]


async def test_a_job_can_t_change_how_often_it_replaces(store: Store) -> None:
    await begun(store, refills=2)
    with pytest.raises(UsageError, match="2 times, not 0"):
        await begun(store, refills=0)


async def test_a_worker_that_starts_again_reports_what_is_replaced(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = DyingListener(dies_at=(Committed, 1))
    with pytest.raises(Killed):
        await Life(store, Policy(failing(0, 1)), listener).play(await begun(store), monkeypatch)
    assert await committed(store) == [0, 1, 4]

    backlog = await begun(store)
    progress, _ = await startup_of(job(samples=4))._counted(store, backlog)
    found = progress.snapshot(running=0, finished=False)
    assert (found.episodes.total, found.episodes.committed, found.episodes.masked) == (6, 3, 2)
    assert (found.episodes.replaced, found.planned) == (2, 4)
    assert sorted(each.episode.sample for each in backlog.todo) == [2, 3, 5]
