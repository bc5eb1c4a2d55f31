"""Whose job it is: one namespace of one cluster has it, and others are told."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from swe_rollout.errors import StoreError, UsageError
from swe_rollout.store.plans import Owner
from swe_rollout.store.store import Store
from unit.store.records import job, tasks, trajectory

A = Owner("team-a", "0123")


@pytest.mark.threat(point=27)
@pytest.mark.parametrize("other", [Owner("team-b", "0123"), Owner("team-a", "4567")])
async def test_a_job_of_another_namespace_is_refused(store: Store, other: Owner) -> None:
    await store.begin(job(), tasks("one"), owner=A)
    await store.commit(trajectory("one"))

    with pytest.raises(UsageError, match="belongs to a job of namespace team-a") as caught:
        await store.begin(job(samples=8), tasks("one", "two"), owner=other)

    assert f"this job is of {other}" in caught.value.why
    assert f"delete {store.uri}/demo/owner.json" in caught.value.fix
    assert (await store.plan("demo")).episodes == 2
    assert await store.owner("demo") == A


@pytest.mark.threat(point=27)
async def test_the_same_job_comes_back_after_its_object_was_deleted(store: Store) -> None:
    first = await store.begin(job(), tasks("one"), owner=A)
    again = await store.begin(job(samples=3), tasks("one"), owner=A)
    assert again.plan.episodes == 3
    assert first.notes == ()


@pytest.mark.threat(point=27)
async def test_of_namespaces_that_begin_at_once_one_gets_the_job(store: Store) -> None:
    owners = [Owner(f"team-{n % 4}", "0123") for n in range(16)]
    begun = await asyncio.gather(
        *(store.begin(job(), tasks("one"), owner=owner) for owner in owners),
        return_exceptions=True,
    )
    won = {
        owner for owner, each in zip(owners, begun, strict=True) if not isinstance(each, UsageError)
    }
    assert won == {await store.owner("demo")}
    assert sum(not isinstance(each, UsageError) for each in begun) == 4


@pytest.mark.threat(point=27)
async def test_a_run_outside_of_clusters_says_whose_job_it_joins(store: Store) -> None:
    await store.begin(job(), tasks("one"), owner=A)
    begun = await store.begin(job(), tasks("one"))
    assert begun.notes == (
        f"{store.uri}/demo is a job of namespace team-a of cluster 0123; this run joins it",
    )


@pytest.mark.threat(point=27)
async def test_a_refused_job_has_claimed_nothing(store: Store) -> None:
    await store.begin(job(), tasks("one"))
    with pytest.raises(UsageError, match="another spec"):
        await store.begin(job(limits={"turns": 3}), tasks("one"), owner=Owner("team-b", "0123"))
    assert await store.owner("demo") is None
    assert (await store.begin(job(), tasks("one"), owner=A)).plan.episodes == 2


async def test_an_owner_that_cant_be_read_is_named(store: Store, tmp_path: Path) -> None:
    await store.begin(job(), tasks("one"), owner=A)
    (tmp_path / "runs/demo/owner.json").write_bytes(b"{")
    with pytest.raises(StoreError, match=r"owner\.json can't be read"):
        await store.begin(job(), tasks("one"), owner=A)
