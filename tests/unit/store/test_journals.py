"""Journals: chunks that are created once, listed, moved aside and removed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from swe_rollout.errors import UsageError
from swe_rollout.store import layout
from swe_rollout.store.bucket import Bucket
from swe_rollout.store.journals import JournalRef, Journals
from swe_rollout.types.episode import EpisodeId
from unit.store.storage_server import Memory, Serve

ONE, TWO = EpisodeId("demo", "a.b", 0), EpisodeId("demo", "a.b", 12)


@pytest.fixture(params=["folder", "s3"])
def bucket(request: pytest.FixtureRequest, tmp_path: Path, serve: Serve) -> Iterator[Bucket]:
    """A folder, and object storage."""
    if request.param == "folder":
        yield Bucket.open(f"file://{tmp_path}")
        return
    with serve(Memory()):
        yield Bucket.open("s3://bucket/runs")


@pytest.fixture
def journals(bucket: Bucket) -> Journals:
    return Journals(bucket, "demo")


async def written(journals: Journals, ref: JournalRef, *numbers: int) -> None:
    for number in numbers:
        assert await journals.create(ref, number, b"%d" % number)


async def test_the_last_journal_of_each_episode_is_found_up_to_its_first_gap(
    journals: Journals, bucket: Bucket
) -> None:
    await written(journals, JournalRef(ONE, 1, 0), 0, 1, 2)
    await written(journals, JournalRef(ONE, 2, 0), 0, 1, 3)
    await written(journals, JournalRef(TWO, 10, 0), 1)
    await bucket.create("demo/journals/a.b/0/2/notes.txt", b"")
    assert await journals.listed() == {
        ONE: JournalRef(ONE, 2, 2, is_whole=False),
        TWO: JournalRef(TWO, 10, 0, is_whole=False),
    }
    assert await journals.last(ONE) == JournalRef(ONE, 2, 2, is_whole=False)
    assert await journals.last(EpisodeId("demo", "c", 0)) is None
    assert await journals.read(JournalRef(ONE, 1, 3)) == [b"0", b"1", b"2"]


async def test_a_chunk_belongs_to_whoever_creates_it(journals: Journals) -> None:
    ref = JournalRef(ONE, 1, 0)
    written_by = await asyncio.gather(
        *(journals.create(ref, 0, b"process %d" % number) for number in range(8))
    )
    assert written_by.count(True) == 1
    winner = written_by.index(True)
    assert await journals.chunk(ref, 0) == b"process %d" % winner
    # A write that arrived, but whose response was lost, is repeated.
    assert await journals.create(ref, 0, b"process %d" % winner)


async def test_each_chunk_that_is_written_is_told_and_no_other(journals: Journals) -> None:
    told = list[int]()
    telling = journals.telling(lambda: told.append(1))
    await written(telling, JournalRef(ONE, 1, 0), 0, 1)
    assert not await telling.create(JournalRef(ONE, 1, 0), 0, b"another process")
    await written(journals, JournalRef(TWO, 1, 0), 0)
    assert len(told) == 2


async def test_journals_are_moved_aside_and_removed(journals: Journals, bucket: Bucket) -> None:
    await written(journals, JournalRef(ONE, 1, 0), 0, 1)
    await written(journals, JournalRef(ONE, 2, 0), 0)
    await written(journals, JournalRef(TWO, 1, 0), 0)
    address = await journals.set_aside(JournalRef(ONE, 1, 2))
    assert "/demo/damaged/a.b/0/" in address
    await journals.remove([ONE, EpisodeId("demo", "c", 0)])
    left = {key async for key in bucket.keys("demo")}
    assert {key for key in left if "/damaged/" not in key} == {layout.chunk_key(TWO, 1, 0)}
    assert len(left) == 3


async def test_an_emptied_folder_is_removed_with_its_last_chunk(tmp_path: Path) -> None:
    journals = Journals(Bucket.open(f"file://{tmp_path}"), "demo")
    await written(journals, JournalRef(ONE, 1, 0), 0)
    (tmp_path / "demo" / "plan.json").touch()
    await journals.remove([ONE])
    assert [path.name for path in (tmp_path / "demo").iterdir()] == ["plan.json"]


async def test_what_a_killed_process_had_staged_goes_with_the_journal(tmp_path: Path) -> None:
    journals = Journals(Bucket.open(f"file://{tmp_path}"), "demo")
    await written(journals, JournalRef(ONE, 1, 0), 0)
    await written(journals, JournalRef(TWO, 1, 0), 0)
    for episode in (ONE, TWO):
        staged = tmp_path / f"{layout.chunk_key(episode, 1, 1)}#1"
        staged.write_bytes(b"half of a chunk")
    await journals.remove([ONE])
    left = {Path(folder, name) for folder, _, names in os.walk(tmp_path) for name in names}
    assert {each.relative_to(tmp_path).as_posix() for each in left} == {
        layout.chunk_key(TWO, 1, 0),
        f"{layout.chunk_key(TWO, 1, 1)}#1",
    }


async def test_a_store_without_conditions_is_refused(serve: Serve) -> None:
    with serve(Memory(keeps_conditions=False)):
        journals = Journals(Bucket.open("s3://bucket/runs"), "demo")
        with pytest.raises(UsageError, match="can't be a store"):
            await journals.create(JournalRef(ONE, 1, 0), 0, b"turn")
