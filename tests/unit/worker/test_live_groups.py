"""Groups of a live job: refills, back-pressure, what is committed, and the end of it all."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from zlib import crc32

import pytest

from swe_rollout.context import Attempt, JobContext
from swe_rollout.errors import UsageError
from swe_rollout.spec.job import RolloutJob
from swe_rollout.spec.limits import RetrySpec
from swe_rollout.store.claims import Claimant
from swe_rollout.store.layout import trajectory_key
from swe_rollout.store.store import Store
from swe_rollout.tokens.log import Segment, SegmentKind
from swe_rollout.training.group_source import Handout, Watch
from swe_rollout.training.groups import Group
from swe_rollout.training.sample_bounds import FailureRate, StaleAction, Staleness
from swe_rollout.types.episode import EpisodeId, Failure
from swe_rollout.types.instance import Instance
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.verdict import Reward, RewardTerm
from swe_rollout.worker import scheduler as scheduler_module
from swe_rollout.worker.backlog import begin
from swe_rollout.worker.failure_budget import BudgetSpentError
from swe_rollout.worker.job import DeadlineExceededError
from swe_rollout.worker.live_groups import LiveGroups, StreamOptions
from unit.worker.worker_parts import LOST, NO_IMAGE, Shared, context, settled, trajectory

Fails = Callable[[Attempt], Failure | None]


def never(attempt: Attempt) -> Failure | None:
    del attempt
    return None


@dataclass
class Setting(Shared):
    """A context that also names the policy of a record."""

    policy: Callable[[EpisodeId], str] = lambda _: "scripted:gold"
    agent: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(renderer=None))


@dataclass
class Policy:
    """Plays episodes from a table: the reward depends on task and place in the group alone."""

    samples: int
    fails: Fails = never
    version: str | None = None
    played: list[Attempt] = field(default_factory=list)
    playing: int = 0
    hold: asyncio.Event | None = None

    def reward(self, episode: EpisodeId) -> float:
        place = episode.sample % self.samples
        return float(crc32(f"{episode.instance}/{place}".encode()) % 4) / 4

    async def run_episode(self, attempt: Attempt, context: JobContext) -> Trajectory:  # noqa: ARG002
        """As `episode.run_episode`."""
        self.played.append(attempt)
        self.playing += 1
        try:
            await asyncio.sleep(0)
            if self.hold is not None:
                await self.hold.wait()
        finally:
            self.playing -= 1
        found = trajectory(attempt, failure=self.fails(attempt))
        if found.failure is not None:
            return found
        sampled = Segment(SegmentKind.SAMPLED, 0, 0, 0, self.version)
        reward = Reward((RewardTerm("r", self.reward(attempt.episode)),))
        return replace(found, reward=reward, segments=(sampled,))


def job(samples: int, **spec: object) -> RolloutJob:
    base = {"dataset": {"releasePairs": {}}, "policy": {"scripted": {}}, "samples": samples}
    return RolloutJob.model_validate({"metadata": {"name": "job"}, "spec": {**base, **spec}})


def tasks(count: int) -> list[Instance]:
    return [
        Instance(instance_id=f"task-{n}", problem_statement="fix it", image="image:1")
        for n in range(count)
    ]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(f"file://{tmp_path}/store")


class Live:
    """Opens streams over a policy from a table."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self._store = store
        self._patch = monkeypatch
        self.setting = Setting(retry=RetrySpec(attempts=1, backoff_seconds=0.001))

    @asynccontextmanager
    async def open(
        self,
        policy: Policy,
        count: int,
        *,
        ahead: int = 2,
        refills: int = 2,
        epoch: int = 0,
        trainer: str = "t1",
        staleness: Staleness | None = None,
        **spec: object,
    ) -> AsyncIterator[LiveGroups]:
        self._patch.setattr(scheduler_module, "run_episode", policy.run_episode)
        of = job(policy.samples, **{"failureBudget": {"maxMaskedFraction": 1}, **spec})
        backlog = await begin(self._store, of, tasks(count), refills=refills)
        claims = self._store.claims("job", Claimant(trainer, epoch))
        handout = Handout("job", claims, Watch(FailureRate(1), staleness))
        await handout.begin(())
        live = LiveGroups(
            of,
            backlog,
            context(self.setting),
            self._store,
            handout,
            ahead=ahead,
        )
        async with live.play():
            yield live


@pytest.fixture
def live(store: Store, monkeypatch: pytest.MonkeyPatch) -> Live:
    return Live(store, monkeypatch)


async def collect(groups: LiveGroups) -> dict[str, Group]:
    found: dict[str, Group] = {}
    async for group in groups:
        assert group.group_id not in found
        found[group.group_id] = group
        await groups.ack(group)
    return found


def poison(seed: int, share: float = 0.05) -> Fails:
    """Fail this share of all attempts, whichever they are."""

    def fails(attempt: Attempt) -> Failure | None:
        chance = random.Random(f"{seed}/{attempt.episode}/{attempt.number}")
        return LOST if chance.random() < share else None

    return fails


@pytest.mark.parametrize("attempts", [1, 3])
async def test_poison_5_percent_infrastructure_failures_change_no_advantage(
    store: Store, live: Live, monkeypatch: pytest.MonkeyPatch, attempts: int
) -> None:
    """Wants 1 and 8: n = 8, 5 % of samples fail; the clean run's advantages, and no group lost."""
    count, size = 150, 8
    clean_store = Store.open(f"{store.uri}-clean")
    clean_policy = Policy(size)
    async with Live(clean_store, monkeypatch).open(clean_policy, count, parallelism=32) as groups:
        clean = await collect(groups)
    live.setting.retry = RetrySpec(attempts=attempts, backoff_seconds=0.0001)
    policy = Policy(size, poison(7))
    async with live.open(policy, count, parallelism=32) as groups:
        poisoned = await collect(groups)

    assert poisoned.keys() == clean.keys()
    for name, group in poisoned.items():
        assert not group.is_short
        assert group.advantages() == clean[name].advantages()
        assert group.rewards == clean[name].rewards
    failures = sum(policy.fails(attempt) is not None for attempt in policy.played)
    assert failures > 0.03 * count * size
    wasted = len(policy.played) - count * size
    assert wasted == failures  # the failed ones themselves, and not one more

    # Refilling whole groups would throw away every group in which a sample failed: 1 - 0.95^8.
    hit = {each.episode.instance for each in policy.played if policy.fails(each) is not None}
    share = len(hit) / count
    assert 0.25 < share < 0.45
    assert len(hit) * size > 5 * wasted
    stored = await store.committed("job")
    assert len(stored) == len({(each.instance, each.sample) for each in stored})
    assert len(stored) == count * size + (wasted if attempts == 1 else 0)


async def test_no_more_groups_are_begun_than_the_trainer_allows(live: Live) -> None:
    policy = Policy(4)
    async with live.open(policy, 10, ahead=2, parallelism=64) as groups:
        await settled()
        assert len({each.episode.instance for each in policy.played}) == 2
        assert await groups.next() is not None
        await settled()
        assert len({each.episode.instance for each in policy.played}) == 3
        assert len([group async for group in groups]) == 9
    assert len(policy.played) == 40


async def test_a_trainer_that_stops_leaves_nothing_running(live: Live, store: Store) -> None:
    policy = Policy(2)
    before = asyncio.all_tasks()
    async with live.open(policy, 8, ahead=3, parallelism=4) as groups:
        assert await groups.next() is not None
        policy.hold = asyncio.Event()
        await settled()
    assert policy.playing == 0
    await settled()
    assert asyncio.all_tasks() <= before
    assert await groups.next() is None
    assert len(await store.committed("job")) < 16


async def test_what_is_committed_is_not_played_again_and_what_is_trained_not_handed_out(
    live: Live, store: Store
) -> None:
    first = Policy(2)
    async with live.open(first, 6, ahead=3) as groups:
        taken = await groups.next()
        assert taken is not None
        await groups.ack(taken)
    committed = await store.committed("job")
    again = Policy(2)
    async with live.open(again, 6, ahead=3, epoch=1) as groups:
        found = await collect(groups)
    assert taken.group_id not in found
    assert len(found) == 5
    assert not {each.episode for each in again.played} & committed
    other = Policy(2)
    async with live.open(other, 6, trainer="t2") as groups:
        assert len(await collect(groups)) == 6
    assert other.played == []


async def test_refills_end_and_the_group_is_short(live: Live) -> None:
    policy = Policy(2, lambda attempt: LOST if attempt.episode.sample % 2 else None)
    async with live.open(policy, 1, refills=2) as groups:
        (group,) = (await collect(groups)).values()
        assert groups.counts.short == 1
    assert group.is_short
    assert sorted(each.episode.sample for each in policy.played) == [0, 1, 3, 5]
    assert [each.rollout_id for each in group.failed] == [f"job/task-0/{n}" for n in (1, 3, 5)]


async def test_a_failure_that_would_come_again_is_not_refilled(live: Live) -> None:
    policy = Policy(2, lambda attempt: NO_IMAGE if attempt.episode.instance == "task-0" else None)
    async with live.open(policy, 2) as groups:
        assert [*await collect(groups)] == ["job/task-1"]
        assert groups.counts.empty == 1
    assert len(policy.played) == 4


async def test_broken_services_stop_the_stream_with_a_reason(live: Live) -> None:
    policy = Policy(4, lambda _: LOST)
    async with live.open(policy, 20, failureBudget={"maxMaskedFraction": 0.2}) as groups:
        with pytest.raises(BudgetSpentError):
            await collect(groups)


async def test_the_job_s_deadline_holds(live: Live) -> None:
    policy = Policy(2, hold=asyncio.Event())
    async with live.open(policy, 2, activeDeadlineSeconds=0.05) as groups:
        with pytest.raises(DeadlineExceededError):
            await groups.next()


async def test_a_sample_that_another_process_committed_counts_readable_or_not(
    live: Live, store: Store, tmp_path: Path
) -> None:
    policy = Policy(2, hold=asyncio.Event())
    async with live.open(policy, 2, ahead=2, parallelism=4) as groups:
        await settled()
        theirs = trajectory(policy.played[0])
        assert await store.commit(theirs)
        path = tmp_path / "store" / trajectory_key(EpisodeId("job", "task-1", 1))
        path.parent.mkdir(parents=True)
        path.write_bytes(b"cut off")
        assert policy.hold is not None
        policy.hold.set()
        found = await collect(groups)
    assert theirs in found["job/task-0"].trajectories
    assert found["job/task-1"].failed[0].type == "DamagedRecord"
    assert found["job/task-1"].is_short


async def test_a_suspended_job_hands_out_what_is_complete_and_starts_nothing(live: Live) -> None:
    async with live.open(Policy(2), 2, trainer="t0") as groups:
        await collect(groups)
    policy = Policy(2)
    async with live.open(policy, 4, suspend=True) as groups:
        assert [*await collect(groups)] == ["job/task-0", "job/task-1"]
    assert policy.played == []


async def test_a_group_ages_while_it_waits_for_the_trainer(live: Live) -> None:
    policy = Policy(2, version="1")
    bound = Staleness(1, StaleAction.DROP)
    async with live.open(policy, 4, ahead=2, staleness=bound) as groups:
        groups.announce(1)
        first = await groups.next()
        assert first is not None
        assert (first.lag, first.stale) == (0, False)
        await settled()
        groups.announce(3)
        policy.version = "3"
        found = await collect(groups)
        assert groups.counts.dropped == 2
    assert [group.lag for group in found.values()] == [0]


async def test_a_call_that_is_cancelled_loses_no_group(live: Live) -> None:
    found = []
    async with live.open(Policy(2), 20, ahead=3) as groups:
        for patience_s in (0.0, 0.001, 0.003) * 40:
            try:
                async with asyncio.timeout(patience_s):
                    group = await groups.next()
            except TimeoutError:
                continue
            if group is not None:
                found.append(group.group_id)
        found += [group.group_id async for group in groups]
    assert sorted(found) == sorted(f"job/task-{n}" for n in range(20))


async def test_a_stream_that_is_not_open_says_so(live: Live) -> None:
    async with live.open(Policy(1), 1) as groups:
        groups._playing, playing = None, groups._playing
        with pytest.raises(UsageError, match="not open"):
            await groups.next()
        groups._playing = playing


@pytest.mark.parametrize("options", [{"ahead": 0}, {"refills": -1}, {"refills": 101}])
def test_options_that_make_no_sense_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="can't be streamed so"):
        StreamOptions(Claimant("t1"), **options)  # type: ignore[arg-type]
