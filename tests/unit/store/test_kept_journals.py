"""Journals that are kept: beside the record, named by it, and compared with what it says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from swe_rollout.errors import UsageError
from swe_rollout.store.store import Store
from swe_rollout.types.episode import EpisodeId
from unit.store.records import trajectory

DATA = b"what engine and sandbox answered" * 100


async def test_a_journal_is_read_back_and_is_no_stray(store: Store) -> None:
    record = trajectory("a", 0)
    kept = await store.keep_journal(record.episode, DATA)
    assert kept == await store.keep_journal(record.episode, DATA)
    named = replace(record, journal=kept)
    await store.commit(named)
    assert await store.read_journal(named) == DATA
    listing = await store.listing("demo")
    assert (set(listing.episodes), listing.strays) == ({record.episode}, ())
    assert (await store.read(record.episode)).journal == kept


async def test_a_record_that_names_none_says_how_to_keep_one(store: Store) -> None:
    with pytest.raises(UsageError) as caught:
        await store.read_journal(trajectory("a", 0))
    assert "keepJournals" in caught.value.fix


@pytest.mark.parametrize("field", ["key", "bytes", "sha256", "episode"])
async def test_a_record_that_says_something_else_is_not_followed(store: Store, field: str) -> None:
    record = trajectory("a", 0)
    kept = await store.keep_journal(record.episode, DATA)
    match field:
        case "key":
            kept = replace(kept, key="demo/plan.json")
        case "bytes":
            kept = replace(kept, bytes=len(DATA) + 1)
        case "sha256":
            kept = replace(kept, sha256=kept.sha256[:16] + "0" * 48)
        case _:
            record = replace(record, episode=EpisodeId("demo", "b", 0))
    with pytest.raises(UsageError, match="can't be used"):
        await store.read_journal(replace(record, journal=kept))


async def test_a_journal_that_was_deleted_is_named(tmp_path: Path) -> None:
    store = Store.open(f"file://{tmp_path}")
    record = trajectory("a", 0)
    kept = await store.keep_journal(record.episode, DATA)
    (tmp_path / kept.key).unlink()
    with pytest.raises(UsageError, match="is gone"):
        await store.read_journal(replace(record, journal=kept))
