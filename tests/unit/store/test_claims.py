"""Claims: each step is taken once, whoever tries, and nobody is robbed within an epoch."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from swe_rollout.errors import UsageError
from swe_rollout.store.claims import Claim, Claimant, ClaimLostError, Claims, ClaimState
from swe_rollout.store.layout import claim_key
from swe_rollout.store.store import Store
from unit.store.storage_server import Memory, Serve


def claims(store: Store, epoch: int = 0, trainer: str = "t1") -> Claims:
    return store.claims("demo", Claimant(trainer, epoch))


async def claimed(found: Claims, instance: str = "a") -> Claim:
    step = await found.claim(instance)
    assert step is not None
    return step


async def test_of_many_processes_one_gets_a_group(store: Store) -> None:
    many = [claims(store) for _ in range(12)]
    got = await asyncio.gather(*(each.claim("a") for each in many))
    assert sum(each is not None for each in got) == 1
    assert await claims(store, trainer="t2").claim("a") is not None


@pytest.mark.parametrize("keeps_conditions", [True, False])
async def test_of_many_processes_one_gets_a_group_in_object_storage(
    serve: Serve,
    keeps_conditions: bool,  # noqa: FBT001 - of the test
) -> None:
    with serve(Memory(keeps_conditions=keeps_conditions)):
        many = [claims(Store.open("s3://bucket/runs")) for _ in range(6)]
        if keeps_conditions:
            got = await asyncio.gather(*(each.claim("a") for each in many))
            (winner,) = [each for each in got if each is not None]
            await many[got.index(winner)].finish(winner, ClaimState.TRAINED)
        else:
            with pytest.raises(UsageError, match="can't be a store"):
                await many[0].claim("a")


async def test_a_finished_group_is_never_claimed_again(store: Store) -> None:
    first = claims(store)
    step = await claimed(first)
    await first.finish(step, ClaimState.TRAINED)
    later = claims(store, epoch=9)
    await later.refresh()
    assert not later.is_free("a")
    assert await later.claim("a") is None


async def test_a_released_group_is_free_for_all(store: Store) -> None:
    first, second = claims(store), claims(store)
    step = await claimed(first)
    assert await second.claim("a") is None
    await first.finish(step, ClaimState.RELEASED)
    await second.refresh()
    assert await second.claim("a") is not None


async def test_only_a_later_epoch_reclaims_and_the_earlier_one_is_told(store: Store) -> None:
    old, same, new = claims(store), claims(store), claims(store, epoch=1)
    step = await claimed(old)
    for each in (same, new):
        await each.refresh()
    assert await same.claim("a") is None
    again = await claimed(new)
    with pytest.raises(ClaimLostError, match="of epoch 1 has claimed it"):
        await old.finish(step, ClaimState.TRAINED)
    await new.finish(again, ClaimState.TRAINED)
    assert [each.state for each in new.all()] == [ClaimState.TRAINED]


async def test_an_acknowledgement_that_got_through_beats_the_reclaim(store: Store) -> None:
    old, new = claims(store), claims(store, epoch=1)
    step = await claimed(old)
    await new.refresh()
    await old.finish(step, ClaimState.TRAINED)
    assert await new.claim("a") is None


async def test_a_write_without_response_that_got_through_is_this_process_s(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = store._bucket.create

    async def unheard(key: str, data: bytes) -> bool:
        await create(key, data)
        return await create(key, data)

    monkeypatch.setattr(store._bucket, "create", unheard)
    mine = claims(store)
    step = await claimed(mine)
    await mine.finish(step, ClaimState.TRAINED)


async def test_the_checkpoint_decides_what_was_trained(store: Store) -> None:
    old = claims(store)
    for name in ("claimed", "released"):
        step = await claimed(old, name)
        if name == "released":
            await old.finish(step, ClaimState.RELEASED)
    new = claims(store, epoch=1)
    await new.refresh()
    await new.settle(["claimed", "released", "never-seen"])
    await new.settle(["claimed"])
    assert {each.instance for each in new.all() if each.state is ClaimState.TRAINED} == {
        "claimed",
        "released",
        "never-seen",
    }


async def test_a_process_that_finds_a_group_in_the_checkpoint_may_be_first_to_say_so(
    store: Store,
) -> None:
    first, second = claims(store), claims(store)
    step = await claimed(first)
    await second.refresh()
    await second.settle(["a"])
    await first.finish(step, ClaimState.TRAINED)
    assert len(first.all()) == 1
    with pytest.raises(ClaimLostError):
        await first.finish(step, ClaimState.RELEASED)


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"instance": 3}'])
async def test_a_step_that_cant_be_read_keeps_its_group_from_everybody(
    store: Store, tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "runs" / claim_key("demo", "t1", "a", 1)
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    (path.parent / "notes.txt").write_text("no step")
    found = claims(store, epoch=5)
    await found.refresh()
    assert await found.claim("a") is None
    assert found.all()[0].process == "unreadable"


async def test_each_step_is_read_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = claims(store)
    for number in range(30):
        await writer.claim(f"task-{number}")
    reads: list[str] = []
    get = store._bucket.get

    async def counted(key: str) -> bytes:
        reads.append(key)
        return await get(key)

    monkeypatch.setattr(store._bucket, "get", counted)
    reader = claims(store)
    for _ in range(5):
        await reader.refresh()
    assert len(reads) == 30


@pytest.mark.parametrize(("trainer", "epoch"), [("a/b", 0), ("", 0), ("..", 0), ("t1", -1)])
def test_a_claimant_that_is_none_is_refused(trainer: str, epoch: int) -> None:
    with pytest.raises(UsageError):
        Claimant(trainer, epoch)
