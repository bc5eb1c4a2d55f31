"""Objects beside a record: packed, each under its own key, and checked when they are read."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from swe_rollout.errors import StoreError, UsageError
from swe_rollout.store import kept as kept_objects
from swe_rollout.store import layout
from swe_rollout.store.kept import pack, unpack, unpack_recorded
from swe_rollout.store.store import Store
from swe_rollout.text import redaction
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.verdict import TestLog
from unit.store.records import RESOLVED, trajectory

DATA = b"one log line\n" * 100
SHA = hashlib.sha256(DATA).hexdigest()
PACKED = pack(DATA, level=3)


@given(st.binary(max_size=2000), st.integers(1, 19))
def test_what_was_packed_comes_back(data: bytes, level: int) -> None:
    packed = pack(data, level=level)
    assert unpack(packed) == data
    sha256 = hashlib.sha256(data).hexdigest()
    assert unpack_recorded(packed, size=len(data), sha256=sha256) == data


@given(st.integers(0, len(PACKED) - 1))
def test_a_frame_that_was_cut_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match=r"zstd frame|bytes, not"):
        unpack(PACKED[:length])
    with pytest.raises(ValueError, match=r"zstd frame|bytes, not"):
        unpack_recorded(PACKED[:length], size=len(DATA), sha256=SHA)


def test_a_frame_of_unknown_size_is_refused() -> None:
    packed = zstandard.ZstdCompressor(write_content_size=False).compress(DATA)
    with pytest.raises(ValueError, match="could not determine content size"):
        unpack(packed)
    with pytest.raises(ValueError, match="it has -1 bytes, not -1"):
        unpack_recorded(packed, size=-1, sha256=SHA)


def test_a_frame_that_is_too_large_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_objects, "MAX_BYTES", len(DATA) - 1)
    with pytest.raises(ValueError, match="it unpacks to more than"):
        unpack(PACKED)
    with pytest.raises(ValueError, match="it has 1300 bytes"):
        unpack_recorded(PACKED, size=len(DATA), sha256=SHA, most=len(DATA) - 1)


@pytest.mark.parametrize(
    ("size", "sha256", "why"),
    [(len(DATA) + 1, SHA, "it has 1300 bytes, not 1301"), (len(DATA), "0" * 64, "its content is")],
)
def test_what_is_not_as_recorded_is_refused(size: int, sha256: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        unpack_recorded(PACKED, size=size, sha256=sha256)


EPISODE = EpisodeId("demo", "demo__one-1", 0)
LOG = b"PASSED a\r\n\xff\x00 not text\n" * 1000


def path_of(store: Store, log: TestLog) -> Path:
    return Path(store.uri.removeprefix("file://")) / log.key


async def committed(store: Store, log: TestLog | None) -> None:
    verdict = replace(RESOLVED, test_log=log)
    assert await store.commit(trajectory(verdict=verdict))


async def test_a_log_is_kept_whole_beside_the_record_that_names_it(store: Store) -> None:
    log = await store.keep_log(EPISODE, LOG)
    await committed(store, log)
    assert (log.bytes, log.sha256) == (len(LOG), hashlib.sha256(LOG).hexdigest())
    assert log.key.rpartition("/")[0] == layout.trajectory_key(EPISODE).rpartition("/")[0]
    assert zstandard.ZstdDecompressor().decompress(path_of(store, log).read_bytes()) == LOG
    assert await store.read_log(EPISODE) == LOG
    assert (await store.read(EPISODE)).verdict == replace(RESOLVED, test_log=log)


async def test_another_attempts_log_replaces_none(store: Store) -> None:
    first = await store.keep_log(EPISODE, LOG)
    before = path_of(store, first).stat().st_mtime_ns
    second = await store.keep_log(EPISODE, LOG + b"2")
    assert first.key != second.key
    assert await store.keep_log(EPISODE, LOG) == first
    assert path_of(store, first).stat().st_mtime_ns == before


async def test_credentials_in_use_are_taken_out(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redaction, "_IN_USE", redaction.Redactor())
    redaction._IN_USE.register("sk-very-secret-123456")
    log = await store.keep_log(EPISODE, b"key=sk-very-secret-123456\n")
    await committed(store, log)
    assert await store.read_log(EPISODE) == b"key=[redacted]\n"


@pytest.mark.parametrize("damage", ["other", "cut", "none", "bomb"])
async def test_a_log_that_is_not_what_the_record_says_is_an_error(
    store: Store, damage: str
) -> None:
    log = await store.keep_log(EPISODE, LOG)
    await committed(store, log)
    path = path_of(store, log)
    pack = zstandard.ZstdCompressor().compress
    match damage:
        case "other":
            path.write_bytes(pack(LOG[::-1]))
        case "cut":
            path.write_bytes(path.read_bytes()[:-10])
        case "bomb":
            path.write_bytes(pack(bytes(1 << 26)))
        case _:
            path.unlink()
    with pytest.raises((StoreError, UsageError)) as caught:
        await store.read_log(EPISODE)
    assert log.key in str(caught.value.why)


async def test_a_log_of_another_episode_is_not_followed(store: Store) -> None:
    await committed(store, await store.keep_log(replace(EPISODE, sample=1), LOG))
    with pytest.raises(StoreError, match="can't be used") as caught:
        await store.read_log(EPISODE)
    assert "another episode" in str(caught.value.why)


@pytest.mark.parametrize("log", [None, TestLog("", 3, "0" * 64, problem="the store can't write x")])
async def test_a_record_without_a_log_says_why(store: Store, log: TestLog | None) -> None:
    await committed(store, log)
    with pytest.raises(UsageError, match="has no test log") as caught:
        await store.read_log(EPISODE)
    assert caught.value.why == (
        "the store can't write x" if log else "no tests ran, or an earlier version recorded it"
    )


JOURNAL = b"what engine and sandbox answered" * 100


async def test_a_journal_is_read_back_and_is_no_stray(store: Store) -> None:
    record = trajectory("a", 0)
    kept = await store.keep_journal(record.episode, JOURNAL)
    assert kept == await store.keep_journal(record.episode, JOURNAL)
    named = replace(record, journal=kept)
    await store.commit(named)
    assert await store.read_journal(named) == JOURNAL
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
    kept = await store.keep_journal(record.episode, JOURNAL)
    match field:
        case "key":
            kept = replace(kept, key="demo/plan.json")
        case "bytes":
            kept = replace(kept, bytes=len(JOURNAL) + 1)
        case "sha256":
            kept = replace(kept, sha256=kept.sha256[:16] + "0" * 48)
        case _:
            record = replace(record, episode=EpisodeId("demo", "b", 0))
    with pytest.raises(UsageError, match="can't be used"):
        await store.read_journal(replace(record, journal=kept))


async def test_a_journal_that_was_deleted_is_named(tmp_path: Path) -> None:
    store = Store.open(f"file://{tmp_path}")
    record = trajectory("a", 0)
    kept = await store.keep_journal(record.episode, JOURNAL)
    (tmp_path / kept.key).unlink()
    with pytest.raises(UsageError, match="is gone"):
        await store.read_journal(replace(record, journal=kept))
