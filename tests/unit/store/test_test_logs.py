"""Logs of test runs: each under its own key, never replaced, checked when they are read."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from swe_rollout.errors import StoreError, UsageError
from swe_rollout.store import layout
from swe_rollout.store.store import Store
from swe_rollout.text import redaction
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.verdict import TestLog
from unit.store.records import RESOLVED, trajectory

EPISODE = EpisodeId("demo", "demo__one-1", 0)
LOG = b"PASSED a\r\n\xff\x00 not text\n" * 1000


def path_of(store: Store, log: TestLog) -> Path:
    from pathlib import Path  # noqa: PLC0415

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


async def test_logs_are_no_episodes_and_no_strays(store: Store) -> None:
    await store.keep_log(EPISODE, LOG)
    listing = await store.listing("demo")
    assert (listing.episodes, listing.strays) == (frozenset(), ())


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


@pytest.mark.parametrize("log", [None, TestLog("", 3, "0" * 64, problem="the store can't write x")])
async def test_a_record_without_a_log_says_why(store: Store, log: TestLog | None) -> None:
    await committed(store, log)
    with pytest.raises(UsageError, match="has no test log") as caught:
        await store.read_log(EPISODE)
    assert caught.value.why == (
        "the store can't write x" if log else "no tests ran, or an earlier version recorded it"
    )


def test_a_key_of_a_log_is_known_and_no_others() -> None:
    key = layout.log_key(EPISODE, "ab" * 32)
    assert layout.is_log_key(key)
    assert not layout.is_log_key(f"{key}.part")
    assert not layout.is_log_key(layout.trajectory_key(EPISODE))
    assert layout.parse_trajectory_key(key) is None
