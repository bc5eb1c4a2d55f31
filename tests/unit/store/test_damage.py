"""One damaged record or oddly named object stops nothing: it is named, left out, and run again."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import zstandard

from swe_rollout.errors import StoreError
from swe_rollout.store import layout
from swe_rollout.store.damage import DamagedRecord, DamagedRecordError
from swe_rollout.store.objects import FolderObjects
from swe_rollout.store.store import Store
from swe_rollout.store.summary import JobTally, summarise
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.trajectory_json import to_json
from unit.store.records import UNRESOLVED, job, tasks, trajectory


def packed(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


def _deep() -> bytes:
    record = msgspec.json.decode(to_json(trajectory("b")))
    text = msgspec.json.encode(record | {"turns": 7})
    return packed(text.replace(b'"turns":7', b'"turns":' + b"[" * 100_000 + b"]" * 100_000))


def _fields(**changes: object) -> bytes:
    return packed(msgspec.json.encode(msgspec.json.decode(to_json(trajectory("b"))) | changes))


DAMAGE = {
    "cut": packed(to_json(trajectory("b")))[:-7],
    "flipped": packed(to_json(trajectory("b"))).replace(b"\x28\xb5\x2f\xfd", b"\x28\xb5\x2f\xfe"),
    "empty": b"",
    "text": b"not zstd",
    "no object": packed(b"[]"),
    "not json": packed(b"{"),
    "another schema": _fields(schema=99),
    "another episode": packed(to_json(trajectory("a"))),
    "a number as episode": _fields(episode=7),
    "odd turns": _fields(turns={"a": 1}),
    "odd terms": _fields(reward_terms="x"),
    "nested": _deep(),
    "unpacks to 8 EiB": b"\x28\xb5\x2f\xfd\xe0" + b"\xff" * 7 + b"\x7f" + b"\x01\x00\x00",
    "unknown size": zstandard.ZstdCompressor(write_content_size=False).compress(b"{}"),
}


@pytest.fixture
async def begun(store: Store) -> Store:
    """A job of three tasks with one sample each, all committed."""
    await store.begin(job(samples=1), tasks("a", "b", "c"))
    for each in (trajectory("a"), trajectory("b"), trajectory("c", verdict=UNRESOLVED)):
        await store.commit(each)
    return store


def record_of(tmp_path: Path, instance: str) -> Path:
    return tmp_path / "runs" / layout.trajectory_key(EpisodeId("demo", instance, 0))


async def readable(store: Store) -> tuple[list[Trajectory], list[DamagedRecord]]:
    damaged: list[DamagedRecord] = []
    return [t async for t in store.trajectories("demo", on_damage=damaged.append)], damaged


@pytest.mark.threat(point=20)
@pytest.mark.parametrize("kind", DAMAGE)
async def test_a_damaged_record_is_named_and_the_others_are_read(
    begun: Store, tmp_path: Path, kind: str
) -> None:
    record_of(tmp_path, "b").write_bytes(DAMAGE[kind])

    found, (damaged,) = await readable(begun)

    assert [t.episode.instance for t in found] == ["a", "c"]
    assert damaged.episode == EpisodeId("demo", "b", 0)
    assert damaged.address == f"{begun.uri}/demo/episodes/b/0/trajectory.json.zst"
    assert damaged.why
    summary = await summarise(begun, "demo")
    assert (summary.episodes, summary.committed, summary.resolved) == (3, 2, 1)
    assert summary.mean_reward == 0.5
    assert summary.damaged == (damaged,)
    assert damaged.address in str(damaged)


@pytest.mark.threat(point=20)
async def test_a_link_to_nothing_is_damaged_too(begun: Store, tmp_path: Path) -> None:
    record_of(tmp_path, "b").unlink()
    record_of(tmp_path, "b").symlink_to("/nonexistent")
    _, (damaged,) = await readable(begun)
    assert damaged.episode.instance == "b"
    assert await begun.set_aside(damaged.episode) is not None
    assert await begun.commit(trajectory("b"))


@pytest.mark.threat(point=20)
@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything; run as another user")
async def test_a_file_that_may_not_be_read_is_damaged_too(begun: Store, tmp_path: Path) -> None:
    record_of(tmp_path, "b").chmod(0)
    found, (damaged,) = await readable(begun)
    assert len(found) == 2
    assert "Permission denied" in damaged.why


@pytest.mark.threat(point=20)
async def test_a_record_of_another_user_is_not_set_aside(
    begun: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(FolderObjects, "read", refused)
    with pytest.raises(StoreError, match="it may be whole"):
        await begun.set_aside(EpisodeId("demo", "b", 0))
    assert record_of(tmp_path, "b").exists()


@pytest.mark.threat(point=20)
async def test_a_folder_in_the_place_of_a_record_is_damaged_too(
    begun: Store, tmp_path: Path
) -> None:
    episode = EpisodeId("demo", "b", 0)
    record_of(tmp_path, "b").unlink()
    record_of(tmp_path, "b").mkdir()
    with pytest.raises(DamagedRecordError, match="Is a directory"):
        await begun.read(episode)
    assert await begun.set_aside(episode) is not None
    assert await begun.commit(trajectory("b"))


@pytest.mark.threat(point=20)
@pytest.mark.parametrize(
    "name",
    [
        b"a b/0/trajectory.json.zst",
        b"x\ny/0/trajectory.json.zst",
        b"\xff\xfe/0/trajectory.json.zst",
        b"\x01/0/trajectory.json.zst",
        "ü/0/trajectory.json.zst".encode(),
        b"%41/0/trajectory.json.zst",
        b"a/00/trajectory.json.zst",
        b"a/" + b"9" * 200 + b"/trajectory.json.zst",
        b"a/99999999999999999999/trajectory.json.zst",
        b"a/0/trajectory.json.zst.bak",
        b"a/0/more/trajectory.json.zst",
        b"a/notes.txt",
        b".DS_Store",
    ],
)
async def test_an_oddly_named_object_stops_nothing(
    begun: Store, tmp_path: Path, name: bytes
) -> None:
    path = tmp_path / "runs/demo/episodes" / os.fsdecode(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")

    summary = await summarise(begun, "demo")
    found, damaged = await readable(begun)

    assert (summary.episodes, summary.committed, len(found), damaged) == (3, 3, 3, [])
    assert len(summary.strays) == 1
    assert summary.strays[0].startswith("demo/episodes/")
    assert msgspec.json.decode(summary.to_json())["strays"] == list(summary.strays)
    assert (await begun.begin(job(samples=1), tasks("a", "b", "c"))).notes == ()


@pytest.mark.threat(point=20)
async def test_a_damaged_record_is_moved_aside_and_its_episode_runs_again(
    begun: Store, tmp_path: Path
) -> None:
    path = record_of(tmp_path, "b")
    path.write_bytes(b"damaged")

    address = await begun.set_aside(EpisodeId("demo", "b", 0))

    assert address is not None
    assert (tmp_path / "runs" / address.removeprefix(f"{begun.uri}/")).read_bytes() == b"damaged"
    assert address.startswith(f"{begun.uri}/demo/damaged/b/0/")
    assert {e.instance for e in await begun.committed("demo")} == {"a", "c"}
    assert await begun.commit(trajectory("b"))
    assert (await summarise(begun, "demo")).committed == 3


@pytest.mark.threat(point=20)
async def test_a_record_that_can_be_read_is_never_moved(begun: Store, tmp_path: Path) -> None:
    before = record_of(tmp_path, "b").read_bytes()
    assert await begun.set_aside(EpisodeId("demo", "b", 0)) is None
    assert record_of(tmp_path, "b").read_bytes() == before
    assert not (tmp_path / "runs/demo/damaged").exists()


async def test_reading_a_damaged_record_says_what_and_how_on(begun: Store, tmp_path: Path) -> None:
    record_of(tmp_path, "b").write_bytes(b"damaged")
    with pytest.raises(DamagedRecordError, match=r"b/0/trajectory\.json\.zst can't be read") as no:
        await begun.read(EpisodeId("demo", "b", 0))
    assert "--rerun-damaged" in no.value.fix
    assert isinstance(no.value, StoreError)
    assert not no.value.retryable


@pytest.mark.threat(point=18)
async def test_a_tally_reads_each_record_once_and_ends_as_a_new_one(store: Store) -> None:
    rewards = [0.1, 0.2, 0.3, 0.7, 1e16, -1e16]
    await store.begin(job(samples=6), tasks("a"))
    tally = JobTally(store, "demo")
    assert [t async for t in tally.read_new()] == []
    for sample in (5, 1, 3, 0, 4, 2):
        base = trajectory("a", sample)
        assert base.reward is not None
        term = replace(base.reward.terms[0], score=rewards[sample])
        await store.commit(replace(base, reward=replace(base.reward, terms=(term,))))
        assert [t.episode.sample async for t in tally.read_new()] == [sample]

    assert await tally.summary() == await summarise(store, "demo")
    assert len(tally.episodes) == 6
