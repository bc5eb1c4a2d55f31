"""Crews: how many episodes run, what becomes of them when that changes, what a failure costs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from swe_rollout.errors import SweRolloutError, UnreachableError
from swe_rollout.events import Committed, Phase, PhaseBegan, Service, StoreFailed, Waited
from swe_rollout.spec.bounds import BUDGET_FLOOR
from swe_rollout.spec.limits import FailureBudget
from swe_rollout.store.layout import trajectory_key
from swe_rollout.store.store import Store
from swe_rollout.types.episode import Failure
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.worker import scheduler as crew_module
from swe_rollout.worker.failure_budget import BudgetSpentError
from swe_rollout.worker.scheduler import EpisodeScheduler, Unmonitored
from unit.worker.worker_parts import (
    LOST,
    NO_ENGINE,
    NO_IMAGE,
    NO_ROOM,
    Shared,
    Stage,
    attempts,
    context,
    settled,
    trajectory,
)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    found = Stage()
    monkeypatch.setattr(crew_module, "run_episode", found.run_episode)
    return found


@pytest.fixture
def shared() -> Shared:
    return Shared()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(f"file://{tmp_path}")


@pytest.fixture
async def scheduler(stage: Stage, shared: Shared, store: Store) -> AsyncIterator[EpisodeScheduler]:
    yield EpisodeScheduler(context(shared), store, budget=FailureBudget(), size=2)
    stage.curtain.set()


async def test_no_more_than_its_size_run_and_all_are_committed(
    scheduler: EpisodeScheduler, stage: Stage, shared: Shared, store: Store
) -> None:
    scheduler.add(attempts(7))
    working = asyncio.create_task(scheduler.work())
    await settled()
    assert (scheduler.running, scheduler.left) == (2, 7)
    stage.curtain.set()
    await working
    assert (stage.most, scheduler.left, scheduler.running) == (2, 0, 0)
    assert len(shared.publish.told) == len(await store.committed("job")) == 7


async def test_more_are_started_at_once_and_fewer_come_to_their_end(
    scheduler: EpisodeScheduler, stage: Stage
) -> None:
    scheduler.add(attempts(12))
    working = asyncio.create_task(scheduler.work())
    await settled()
    scheduler.resize(6)
    await settled()
    assert stage.playing == 6
    scheduler.resize(1)
    await settled()
    assert (stage.playing, stage.cancelled) == (6, 0)
    stage.curtain.set()
    await working
    assert [a.episode.sample for a in stage.began] == list(range(12))


async def test_what_runs_and_what_can_begin_next_is_foreseen_and_nothing_in_a_pause(
    scheduler: EpisodeScheduler, stage: Stage, shared: Shared
) -> None:
    todo = attempts(5)
    scheduler.add(todo)
    working = asyncio.create_task(scheduler.work())
    await settled()
    assert (list(shared.playing), list(shared.coming)) == (todo[:2], todo[2:4])
    scheduler.resize(0)
    scheduler.drop()
    await settled()
    assert (shared.playing, shared.coming) == ((), ())
    scheduler.resize(2)
    stage.curtain.set()
    await working


async def test_nothing_starts_while_the_size_is_0(
    scheduler: EpisodeScheduler, stage: Stage
) -> None:
    scheduler.resize(0)
    scheduler.add(attempts(2))
    working = asyncio.create_task(scheduler.work())
    await settled()
    assert not stage.began
    stage.curtain.set()
    scheduler.resize(2)
    await working
    assert len(stage.began) == 2


async def test_what_was_dropped_is_done_again_as_the_same_attempt(
    scheduler: EpisodeScheduler, stage: Stage, store: Store
) -> None:
    scheduler.add(attempts(3))
    working = asyncio.create_task(scheduler.work())
    await settled()
    scheduler.resize(0)
    scheduler.drop()
    await settled()
    assert (stage.playing, stage.cancelled, scheduler.left) == (0, 2, 3)
    assert not working.done()
    stage.curtain.set()
    scheduler.resize(2)
    await working
    assert {attempt.number for attempt in stage.began} == {1}
    assert len(await store.committed("job")) == 3


async def test_a_closed_crew_starts_nothing_and_returns_when_the_running_have_ended(
    scheduler: EpisodeScheduler, stage: Stage
) -> None:
    scheduler.add(attempts(5))
    working = asyncio.create_task(scheduler.work())
    await settled()
    scheduler.close()
    await settled()
    assert not working.done()
    stage.curtain.set()
    await working
    assert scheduler.left == 3


async def test_what_is_being_stored_is_not_dropped(
    scheduler: EpisodeScheduler, stage: Stage, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, may_go_on = asyncio.Event(), asyncio.Event()
    commit = store.commit

    async def slowly(record: Trajectory) -> bool:
        reached.set()
        await may_go_on.wait()
        return await commit(record)

    monkeypatch.setattr(store, "commit", slowly)
    stage.curtain.set()
    scheduler.add(attempts(1))
    working = asyncio.create_task(scheduler.work())
    await reached.wait()
    scheduler.drop()
    await settled()
    may_go_on.set()
    await working
    assert (stage.cancelled, len(stage.began)) == (0, 1)
    assert len(await store.committed("job")) == 1


async def test_an_episode_that_is_stored_already_counts_as_it_is_stored(
    scheduler: EpisodeScheduler, stage: Stage, shared: Shared, store: Store
) -> None:
    (attempt,) = attempts(1)
    before = trajectory(attempt, resolved=False)
    await store.commit(before)
    stage.curtain.set()
    scheduler.add([attempt])
    await scheduler.work()
    assert shared.publish.told == [before]


async def test_a_failure_that_may_pass_is_tried_again_and_the_last_is_committed_masked(
    scheduler: EpisodeScheduler, stage: Stage, shared: Shared
) -> None:
    stage.curtain.set()
    stage.failures.extend([LOST] * 3)
    scheduler.add(attempts(1))
    await scheduler.work()
    assert [attempt.number for attempt in stage.began] == [1, 2, 3]
    assert shared.publish.again == [1, 2]
    (record,) = shared.publish.told
    assert record.failure == LOST


async def test_a_failure_that_stands_is_not_tried_again(
    scheduler: EpisodeScheduler, stage: Stage
) -> None:
    stage.curtain.set()
    stage.failures.append(NO_IMAGE)
    scheduler.add(attempts(1))
    await scheduler.work()
    assert len(stage.began) == 1


async def test_no_room_costs_no_try_while_others_hold_it(
    scheduler: EpisodeScheduler, stage: Stage, shared: Shared
) -> None:
    stage.failures.append(NO_ROOM)
    scheduler.add(attempts(2))
    working = asyncio.create_task(scheduler.work())
    await settled()
    stage.curtain.set()
    await working
    assert shared.publish.again == []
    assert [attempt.number for attempt in stage.began] == [1, 1, 1]


async def test_too_many_masked_episodes_end_the_work(
    stage: Stage, shared: Shared, store: Store
) -> None:
    budget = FailureBudget(max_masked_fraction=0.5)
    scheduler = EpisodeScheduler(context(shared), store, budget=budget, size=1)
    stage.curtain.set()
    stage.failures.extend([NO_IMAGE] * 50)
    scheduler.add(attempts(50))
    with pytest.raises(BudgetSpentError, match="6 of 6"):
        await scheduler.work()
    assert len(shared.publish.told) == BUDGET_FLOOR * 0.5 + 1


@pytest.mark.threat(point=8)
async def test_by_default_a_job_whose_sandboxes_all_end_is_not_complete(
    stage: Stage, shared: Shared, store: Store
) -> None:
    scheduler = EpisodeScheduler(context(shared), store, budget=FailureBudget(), size=1)
    stage.curtain.set()
    stage.failures.extend([NO_IMAGE] * 50)
    scheduler.add(attempts(50))
    with pytest.raises(BudgetSpentError, match="3 of 3 episodes were masked"):
        await scheduler.work()


class Outage(Unmonitored):
    """Services of which the engine is away until the test says otherwise."""

    store_patience_s = 0.0

    def __init__(self) -> None:
        self.back = asyncio.Event()
        self.excused = 0
        self.heard: list[str] = []

    async def ready(self) -> None:
        if self.excused:
            await self.back.wait()

    async def excuses(self, failure: Failure) -> bool:
        self.excused += failure == NO_ENGINE
        return failure == NO_ENGINE

    def store_failed(self, error: SweRolloutError) -> None:
        self.heard.append(error.what)

    def store_responded(self) -> None:
        self.heard.append("well")


async def test_an_engine_that_is_away_costs_no_try_and_holds_everything_back(
    stage: Stage, shared: Shared, store: Store
) -> None:
    services = Outage()
    scheduler = EpisodeScheduler(
        context(shared), store, budget=FailureBudget(), size=2, services=services
    )
    stage.failures.extend([NO_ENGINE, NO_ENGINE])
    scheduler.add(attempts(4))
    working = asyncio.create_task(scheduler.work())
    await settled()
    stage.curtain.set()
    await settled()
    assert (len(stage.began), services.excused, scheduler.running) == (2, 2, 0)
    services.back.set()
    await working
    assert shared.publish.again == []
    assert {attempt.number for attempt in stage.began} == {1}
    assert len(shared.publish.told) == 4


async def test_waits_for_the_store_and_the_engine_are_published(
    stage: Stage, shared: Shared, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = Outage()
    services.store_patience_s = 30.0
    scheduler = EpisodeScheduler(
        context(shared), store, budget=FailureBudget(), size=1, services=services
    )
    commit, failures = store.commit, iter([UnreachableError("no store")])

    async def failing_once(record: Trajectory) -> bool:
        for error in failures:
            raise error
        return await commit(record)

    async def slowly() -> None:
        await asyncio.sleep(0.01)

    monkeypatch.setattr(store, "commit", failing_once)
    monkeypatch.setattr(services, "ready", slowly)
    stage.curtain.set()
    scheduler.add(attempts(1))
    await scheduler.work()
    engine, phase, failed, waited, committed = shared.publish.events
    assert isinstance(engine, Waited)
    assert (engine.service, engine.seconds > 0) == (Service.ENGINE, True)
    assert phase == PhaseBegan(attempts(1)[0].episode, Phase.COMMIT)
    assert isinstance(failed, StoreFailed)
    assert str(failed.error) == "no store"
    assert isinstance(waited, Waited)
    assert (waited.service, waited.seconds > 0) == (Service.STORE, True)
    assert isinstance(committed, Committed)
    assert services.heard == ["no store", "well"]
    assert len(stage.began) == 1


async def test_after_a_store_that_stayed_away_the_work_can_go_on_where_it_was(
    stage: Stage, shared: Shared, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = EpisodeScheduler(
        context(shared), store, budget=FailureBudget(), size=2, services=Outage()
    )

    async def never(record: Trajectory) -> bool:
        raise UnreachableError("no store", why=str(record.episode))

    stage.curtain.set()
    scheduler.add(attempts(3))
    with monkeypatch.context() as patch:
        patch.setattr(store, "commit", never)
        with pytest.raises(UnreachableError):
            await scheduler.work()
    assert scheduler.left == 3
    await scheduler.work()
    assert {record.episode for record in shared.publish.told} == await store.committed("job")
    assert len(shared.publish.told) == 3


@pytest.mark.threat(point=20)
async def test_a_damaged_record_that_was_committed_meanwhile_stops_nothing(
    stage: Stage, shared: Shared, store: Store, tmp_path: Path
) -> None:
    scheduler = EpisodeScheduler(context(shared), store, budget=FailureBudget(), size=2)
    first, second = attempts(2)
    path = tmp_path / trajectory_key(first.episode)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"damaged")
    stage.curtain.set()
    scheduler.add([first, second])
    await scheduler.work()
    assert [t.episode for t in shared.publish.told] == [second.episode]
    assert path.read_bytes() == b"damaged"
    assert scheduler.left == 0
