"""Journals that outlive their episodes: one object each, beside the record that names it.

<job>/episodes/<instance>/<sample>/journal-<first 16 digits of its SHA-256>.msgpack.zst

What is in one is in `swe_rollout.journal.kept`. As with logs of tests, the key depends on the
content: whoever else plays the episode writes another object, and the record names its own.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import Final

from swe_rollout.errors import StoreError, UnreachableError, UsageError
from swe_rollout.store import layout
from swe_rollout.store.bucket import Bucket
from swe_rollout.store.kept import pack, unpack_recorded
from swe_rollout.types.episode import EpisodeId, KeptJournal
from swe_rollout.types.trajectory import Trajectory

MAX_KEPT_BYTES: Final = 256 << 20
"""Largest journal that is kept or read, unpacked: one process holds it in memory."""
_LEVEL: Final = 3


async def keep_journal(bucket: Bucket, episode: EpisodeId, data: bytes) -> KeptJournal:
    """Write a journal unless it is there already. Raises StoreError."""
    kept, packed = await asyncio.to_thread(_packed, episode, data)
    try:
        await bucket.create(kept.key, packed)
    except UnreachableError as error:
        raise StoreError(error.what, why=error.why, fix=error.fix) from error
    return kept


async def read_journal(bucket: Bucket, trajectory: Trajectory) -> bytes:
    """Return the journal that a record names. Raises UsageError where there is none, or another."""
    kept = trajectory.journal
    if kept is None:
        raise UsageError(
            f"{trajectory.episode} has no journal to fork from",
            why="its record names none: journals go when their episode is committed, and some "
            "episodes have none",
            fix="run the job again, under another name, with spec.store.keepJournals: true",
        )
    own = layout.is_kept_journal_key(kept.key)
    if not own or kept.key != layout.kept_journal_key(trajectory.episode, kept.sha256):
        raise _damaged(trajectory, kept, "its record names an object of another episode")
    try:
        packed = await bucket.get(kept.key)
    except FileNotFoundError as error:
        raise UsageError(
            f"the journal of {trajectory.episode} is gone",
            why=f"{bucket.uri}/{kept.key} does not exist",
            fix="restore it from a backup, or fork another episode",
        ) from error
    try:
        return await asyncio.to_thread(
            unpack_recorded, packed, size=kept.bytes, sha256=kept.sha256, most=MAX_KEPT_BYTES
        )
    except ValueError as error:
        raise _damaged(trajectory, kept, str(error)) from error


def _damaged(trajectory: Trajectory, kept: KeptJournal, why: str) -> UsageError:
    return UsageError(
        f"the journal of {trajectory.episode} can't be used",
        why=f"{kept.key}: {why}",
        fix="restore it from a backup, or fork another episode",
    )


def _packed(episode: EpisodeId, data: bytes) -> tuple[KeptJournal, bytes]:
    sha256 = hashlib.sha256(data).hexdigest()
    kept = KeptJournal(layout.kept_journal_key(episode, sha256), len(data), sha256)
    return kept, pack(data, level=_LEVEL)
