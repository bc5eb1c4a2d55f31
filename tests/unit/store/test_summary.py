"""The counts and means of a job."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from swe_rollout.errors import StoreError
from swe_rollout.store.bucket import Bucket
from swe_rollout.store.layout import TRAJECTORY
from swe_rollout.store.store import Store
from swe_rollout.store.summary import JobTally, summarise
from swe_rollout.types.episode import Failure
from unit.store.records import UNRESOLVED, job, tasks, trajectory


async def test_a_summary_counts_masked_episodes_apart(store: Store) -> None:
    await store.begin(job(samples=3), tasks("a", "b"))
    failure = Failure.of(StoreError("gone"))
    broken = replace(
        trajectory("b", 0, verdict=None), failure=failure, stop_reason=None, patch="lost"
    )
    for t in (
        trajectory("a", 0),
        trajectory("a", 1, UNRESOLVED),
        trajectory("a", 2, None),
        broken,
    ):
        await store.commit(t)
    summary = await summarise(store, "demo")
    record = json.loads(summary.to_json())
    assert list(record.items()) == [
        ("job", "demo"),
        ("episodes", 6),
        ("committed", 4),
        ("resolved", 1),
        ("unresolved", 2),
        ("masked", 1),
        ("mean_reward", 0.5),
        ("stop_reasons", {"submitted": 3}),
        ("failures", {"StoreError": 1}),
        ("damaged", []),
        ("strays", []),
        ("tampered", 0),
        ("unproven", 0),
        ("replaced", 0),
        ("quarantined", {}),
        ("failure_groups", record["failure_groups"]),
        ("masked_share", 0.25),
        ("instances", record["instances"]),
    ]
    assert record["failure_groups"] == [
        {
            "owner": "store",
            "type": "StoreError",
            "message": "gone",
            "count": 1,
            "example": "demo/b/0",
            "fix": "check the store's address and credentials",
        }
    ]
    assert record["instances"][0] == {
        "instance": "a",
        "samples": 3,
        "resolved": 1,
        "mean_reward": 0.5,
        "turns": record["instances"][0]["turns"],
        "tokens": 9,
        "masked": 0,
    }
    group = summary.by_instance[0]
    assert (group.instance, group.samples, group.resolved, group.tokens) == ("a", 3, 1, 9)
    assert summary.by_instance[1].mean_reward is None


async def test_a_summary_without_graded_episodes_has_no_mean(store: Store) -> None:
    await store.begin(job(), tasks("a"))
    assert (await summarise(store, "demo")).mean_reward is None


async def test_a_reading_that_is_cancelled_loses_no_record(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.begin(job(samples=2), tasks("a"))
    await store.commit(trajectory("a", 0))
    await store.commit(trajectory("a", 1))
    tally = JobTally(store, "demo")
    is_read, read = asyncio.Event(), Bucket.get

    async def stall(bucket: Bucket, key: str) -> bytes:
        if not key.endswith(TRAJECTORY):
            return await read(bucket, key)
        is_read.set()
        return await asyncio.Future()

    monkeypatch.setattr(Bucket, "get", stall)
    reading = asyncio.create_task(tally.summary())
    await is_read.wait()
    reading.cancel()
    await asyncio.wait([reading])
    assert reading.cancelled()

    monkeypatch.setattr(Bucket, "get", read)
    assert [each.episode.sample async for each in tally.read_new()] == [0, 1]
    assert [each async for each in tally.read_new()] == []
    assert (await tally.summary()).committed == 2


async def test_a_replaced_sample_is_counted_and_one_that_is_owed_is_waited_for(
    store: Store,
) -> None:
    plan = (await store.begin(job(samples=2), tasks("a"))).plan
    await store.set_refills("demo", 1)
    lost = replace(Failure.of(StoreError("gone")), retryable=True)
    await store.commit(replace(trajectory("a", 0, verdict=None), failure=lost, stop_reason=None))
    await store.commit(trajectory("a", 1))
    tally = JobTally(store, "demo")
    assert ((await tally.summary()).replaced, await tally.left(plan)) == (0, 1)
    await store.commit(trajectory("a", 2))
    found = await tally.summary()
    assert (found.replaced, found.masked, found.committed, found.episodes) == (1, 1, 3, 3)
    assert await tally.left(plan) == 0
