"""Groups from a store alone: complete ones, each to one process, whatever the store looks like."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from swe_rollout.errors import UnreachableError, UsageError
from swe_rollout.store.bucket import Bucket
from swe_rollout.store.claims import Claimant, ClaimLostError, ClaimState
from swe_rollout.store.layout import trajectory_key
from swe_rollout.store.store import Store
from swe_rollout.training.group_source import Handout, Watch
from swe_rollout.training.groups import Group
from swe_rollout.training.sample_bounds import FailureRate, FailureRateError, StaleAction, Staleness
from swe_rollout.training.stored_groups import StoredGroups
from swe_rollout.types.episode import EpisodeId
from unit.training.group_parts import LOST, begin, commit, sample


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(f"file://{tmp_path}/runs")


async def reader(
    store: Store,
    *,
    epoch: int = 0,
    trained: tuple[str, ...] = (),
    staleness: Staleness | None = None,
    bound: float = 1,
    wait_s: float | None = 0,
) -> StoredGroups:
    claims = store.claims("demo", Claimant("t1", epoch))
    handout = Handout("demo", claims, Watch(FailureRate(bound), staleness))
    await handout.begin(trained)
    return StoredGroups(store, "demo", handout, wait_s=wait_s, longest_poll_s=0.05)


async def names(groups: StoredGroups) -> list[str]:
    return [group.group_id async for group in groups]


async def test_complete_groups_come_in_the_order_of_the_plan_and_once(store: Store) -> None:
    await begin(store, "b", "a", "c")
    await commit(
        store,
        {"a": [sample("a", 1), sample("a", 0)], "b": [sample("b", 0), sample("b", 1)]}
        | {"c": [sample("c", 1)]},
    )
    groups = await reader(store)
    assert await names(groups) == ["demo/b", "demo/a"]
    assert await names(groups) == []
    assert await names(await reader(store)) == []
    await commit(store, {"c": [sample("c", 0)]})
    found = await groups.next()
    assert found is not None
    assert [each.episode.sample for each in found.trajectories] == [0, 1]
    assert groups.counts.handed_out == 3


async def test_it_follows_a_job_that_runs_and_ends_with_its_last_group(store: Store) -> None:
    await begin(store, *map(str, range(5)))
    groups = await reader(store, wait_s=None)

    async def roll_out() -> None:
        for number in range(5):
            await asyncio.sleep(0.02)
            await commit(store, {"": [sample(str(number), each) for each in range(2)]})

    _, found = await asyncio.gather(roll_out(), names(groups))
    assert sorted(found) == [f"demo/{each}" for each in range(5)]


async def test_processes_of_one_trainer_share_the_groups(store: Store) -> None:
    await begin(store, *map(str, range(30)))
    await commit(store, {"": [sample(str(n), each) for n in range(30) for each in range(2)]})
    ranks = [await reader(store) for _ in range(4)]
    found = [name for part in await asyncio.gather(*map(names, ranks)) for name in part]
    assert sorted(found) == sorted(f"demo/{each}" for each in range(30))
    assert sum(rank.counts.handed_out for rank in ranks) == 30


async def test_a_call_that_is_cancelled_loses_no_group(store: Store) -> None:
    await begin(store, *map(str, range(12)))
    await commit(store, {"": [sample(str(n), each) for n in range(12) for each in range(2)]})
    groups = await reader(store)
    found = []
    for patience_s in (0.0, 0.001, 0.002, 0.005, 0.01) * 20:
        try:
            async with asyncio.timeout(patience_s):
                group = await groups.next()
        except TimeoutError:
            continue
        if group is None:
            break
        found.append(group.group_id)
    found += await names(groups)
    assert sorted(found) == sorted(f"demo/{each}" for each in range(12))


async def test_by_default_a_group_is_trained_at_most_once(store: Store) -> None:
    await begin(store, "a", "b")
    await commit(store, {"": [sample(n, each) for n in "ab" for each in range(2)]})
    first = await reader(store)
    assert await first.next() is not None  # and it dies
    again = await reader(store)
    assert await names(again) == ["demo/b"]
    await again.ack("demo/b")
    later = await reader(store, epoch=1)
    assert await names(later) == ["demo/a"]


async def test_what_the_checkpoint_has_is_not_reclaimed(store: Store) -> None:
    await begin(store, "a", "b")
    await commit(store, {"": [sample(n, each) for n in "ab" for each in range(2)]})
    first = await reader(store)
    assert await names(first) == ["demo/a", "demo/b"]
    again = await reader(store, epoch=1, trained=("demo/a",))
    assert await names(again) == ["demo/b"]
    with pytest.raises(ClaimLostError):
        await first.ack("demo/b")
    with pytest.raises(UsageError, match="no group of demo"):
        await reader(store, trained=("other/a",))


async def test_a_group_is_acknowledged_once_where_it_was_handed_out(store: Store) -> None:
    await begin(store, "a")
    await commit(store, {"": [sample("a", each) for each in range(2)]})
    groups = await reader(store)
    found = await groups.next()
    assert found is not None
    await groups.release(found)
    assert await names(groups) == ["demo/a"]
    await groups.ack(found)
    for again in (found, "demo/other"):
        with pytest.raises(UsageError, match="is not claimed by this process"):
            await groups.ack(again)


async def test_failed_samples_make_a_group_short_and_none_at_all_is_skipped(store: Store) -> None:
    await begin(store, "short", "empty")
    await commit(
        store,
        {"": [sample("short", 0), sample("short", 1, failure=LOST)]}
        | {"empty": [sample("empty", each, failure=LOST) for each in range(2)]},
    )
    groups = await reader(store)
    found = await groups.next()
    assert found is not None
    assert found.is_short
    assert found.advantages() == (0.0,)
    assert await groups.next() is None
    assert (groups.counts.short, groups.counts.empty, groups.counts.failed_samples) == (1, 1, 3)
    assert await names(await reader(store, epoch=1)) == ["demo/short"]


async def test_it_waits_for_the_samples_that_replace_failed_ones(store: Store) -> None:
    await begin(store, "a")
    await store.set_refills("demo", 1)
    await commit(store, {"": [sample("a", 0), sample("a", 1, failure=LOST)]})
    groups = await reader(store)
    assert await names(groups) == []
    await commit(store, {"": [sample("a", 3, reward=0.0)]})
    found = await groups.next()
    assert found is not None
    assert [each.episode.sample for each in found.trajectories] == [0, 3]
    assert not found.is_short


async def test_refills_are_what_the_job_was_begun_with(store: Store) -> None:
    assert await store.refills("demo") == 0
    await store.set_refills("demo", 1)
    await store.set_refills("demo", 1)
    with pytest.raises(UsageError, match="replaces a failed sample 1 times, not 2"):
        await store.set_refills("demo", 2)


async def test_damaged_records_and_deleted_ones_harm_their_group_alone(
    store: Store, tmp_path: Path
) -> None:
    await begin(store, "damaged", "gone", "good")
    names_of = ("damaged", "gone", "good")
    await commit(store, {"": [sample(n, each) for n in names_of for each in range(2)]})
    runs = tmp_path / "runs"
    (runs / trajectory_key(EpisodeId("demo", "damaged", 1))).write_bytes(b"not zstd")
    gone = runs / trajectory_key(EpisodeId("demo", "gone", 1))
    gone.unlink()
    gone.symlink_to("nothing")
    groups = await reader(store)
    found = [group async for group in groups]
    assert [group.group_id for group in found] == ["demo/damaged", "demo/good"]
    assert found[0].failed[0].type == "DamagedRecord"
    gone.unlink()
    assert await names(groups) == []
    await commit(store, {"": [sample("gone", 1)]})
    assert await names(groups) == ["demo/gone"]


async def test_a_failure_rate_above_the_bound_stops_and_loses_no_group(store: Store) -> None:
    """Want 1: an alarm, with its owners."""
    tasks = [str(each) for each in range(10)]
    await begin(store, *tasks, samples=4)
    await commit(store, {"": [sample(n, each) for n in tasks for each in range(2)]})
    lost = [sample(n, each, failure=LOST) for n in tasks for each in (2, 3)]
    await commit(store, {"": lost})
    groups = await reader(store, bound=0.3)
    found: list[str] = []
    with pytest.raises(FailureRateError, match="sandbox"):
        found.extend([group.group_id async for group in groups])
    again = await names(await reader(store, bound=1))
    assert not {*found} & {*again}
    assert len(again) >= 9  # what was handed out before the alarm is claimed; nothing else is


async def test_stale_groups_are_marked_or_dropped_never_silently(store: Store) -> None:
    await begin(store, "old", "new")
    await commit(store, {"": [sample("old", each, version="3") for each in range(2)]})
    await commit(store, {"": [sample("new", each, version="6") for each in range(2)]})

    async def read(epoch: int, action: StaleAction) -> tuple[list[Group], StoredGroups]:
        groups = await reader(store, epoch=epoch, staleness=Staleness(2, action))
        groups.announce(7)
        return [group async for group in groups], groups

    marked, groups = await read(1, StaleAction.MARK)
    assert [(group.lag, group.stale) for group in marked] == [(4, True), (1, False)]
    assert groups.counts.stale == 1
    kept, groups = await read(2, StaleAction.DROP)
    assert [group.group_id for group in kept] == ["demo/new"]
    assert groups.counts.dropped == 1
    notes = {each.instance: each.note for each in groups._handout.claims.all()}
    assert notes["old"] == "its lag is 4"


async def test_a_poll_costs_a_listing_and_each_record_is_read_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = [str(each) for each in range(40)]
    await begin(store, *tasks)
    await commit(store, {"": [sample(n, each) for n in tasks for each in range(2)]})
    reads, lists = list[str](), list[str]()
    get, keys = Bucket.get, Bucket.keys

    async def counted_get(bucket: Bucket, key: str) -> bytes:
        reads.append(key)
        return await get(bucket, key)

    def counted_keys(bucket: Bucket, prefix: str) -> object:
        lists.append(prefix)
        return keys(bucket, prefix)

    monkeypatch.setattr(Bucket, "get", counted_get)
    monkeypatch.setattr(Bucket, "keys", counted_keys)
    groups = await reader(store)
    assert len(await names(groups)) == 40
    assert len([key for key in reads if "episodes" in key]) == 80
    assert len([key for key in reads if "consumed" in key]) == 0
    before = len(lists)
    await groups._poll()
    assert sorted(lists[before:]) == ["demo/consumed/t1", "demo/episodes", "demo/plans"]


async def test_a_store_that_is_down_for_a_while_is_waited_for(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(store, "a")
    groups = await reader(store, wait_s=None)
    await groups._poll()
    committed = Store.committed
    down = [UnreachableError("down")]

    async def flaky(store: Store, job: str) -> frozenset[EpisodeId]:
        if down:
            raise down.pop()
        return await committed(store, job)

    monkeypatch.setattr(Store, "committed", flaky)
    await commit(store, {"": [sample("a", each) for each in range(2)]})
    found = await groups.next()
    assert found is not None
    assert not down


async def test_a_plan_that_grows_brings_groups_again_only_if_they_are_new(store: Store) -> None:
    await begin(store, "a")
    await commit(store, {"": [sample("a", each) for each in range(2)]})
    groups = await reader(store)
    assert await names(groups) == ["demo/a"]
    await begin(store, "a", "b")
    await commit(store, {"": [sample("b", each) for each in range(2)]})
    assert await names(groups) == ["demo/b"]


async def test_skipped_is_a_state_of_its_own(store: Store) -> None:
    await begin(store, "a")
    await commit(store, {"": [sample("a", each, failure=LOST) for each in range(2)]})
    groups = await reader(store)
    assert await groups.next() is None
    assert [each.state for each in groups._handout.claims.all()] == [ClaimState.SKIPPED]
