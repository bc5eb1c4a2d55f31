"""Objects beside an episode's record, which names them: test logs and journals.

<job>/episodes/<instance>/<sample>/test-<first 16 digits of its SHA-256>.log.zst
<job>/episodes/<instance>/<sample>/journal-<first 16 digits of its SHA-256>.msgpack.zst

The key depends on the content: another process that plays the episode writes another object, and
each record names its own. `swe_rollout.journal.kept` defines a journal's content. Objects are
packed as zstd frames with checksums, and refused if incomplete. An object may claim any unpacked
size, so the size is bounded before unpacking.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from typing import Final

import zstandard

from swe_rollout.errors import StoreError, UnreachableError, UsageError
from swe_rollout.store import layout
from swe_rollout.store.bucket import Bucket
from swe_rollout.text.redaction import redact_log
from swe_rollout.types.episode import EpisodeId, KeptJournal
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.verdict import TestLog

MAX_BYTES: Final = 2 << 30
"""Size limit of an unpacked object."""
MAX_KEPT_BYTES: Final = 256 << 20
"""Size limit of an unpacked journal, because a process holds it in memory."""
_LEVEL: Final = 3


async def keep_log(bucket: Bucket, episode: EpisodeId, data: bytes) -> TestLog:
    """Write a log, with credentials in use removed, unless it exists. Raises StoreError."""
    data = await asyncio.to_thread(redact_log, data)
    return TestLog(*await _keep(bucket, lambda sha256: layout.log_key(episode, sha256), data))


async def keep_journal(bucket: Bucket, episode: EpisodeId, data: bytes) -> KeptJournal:
    """Write a journal unless it exists. Raises StoreError."""
    return KeptJournal(
        *await _keep(bucket, lambda sha256: layout.kept_journal_key(episode, sha256), data)
    )


async def read_log(bucket: Bucket, trajectory: Trajectory) -> bytes:
    """Return the log that a record names.

    Raises UsageError if there is none, StoreError if it does not match the record.
    """
    log = trajectory.verdict.test_log if trajectory.verdict is not None else None
    if log is None or not log.key:
        raise UsageError(
            f"{trajectory.episode} has no test log",
            why=log.problem if log else "no tests ran, or an earlier version recorded it",
            fix="its end is on the episode's page: swe-rollout view",
        )
    own = layout.is_log_key(log.key) and layout.log_key(trajectory.episode, log.sha256)
    address = f"{bucket.uri}/{log.key}"
    try:
        return await _read(bucket, log, own or "")
    except FileNotFoundError as error:
        raise UsageError(
            f"the log of {trajectory.episode} is gone",
            why=f"{address} does not exist",
            fix="logs may be deleted, but not what the record says of them",
        ) from error
    except ValueError as error:
        raise StoreError(
            f"the log of {trajectory.episode} can't be used",
            why=f"{address}: {error}",
            fix="restore it from a backup",
            retryable=False,
        ) from error


async def read_journal(bucket: Bucket, trajectory: Trajectory) -> bytes:
    """Return the journal that a record names. Raises UsageError if it is missing or differs."""
    kept = trajectory.journal
    if kept is None:
        raise UsageError(
            f"{trajectory.episode} has no journal to fork from",
            why="its record names none: journals go when their episode is committed, and some "
            "episodes have none",
            fix="run the job again, under another name, with spec.store.keepJournals: true",
        )
    is_journal = layout.is_kept_journal_key(kept.key)
    own = is_journal and layout.kept_journal_key(trajectory.episode, kept.sha256)
    try:
        return await _read(bucket, kept, own or "", most=MAX_KEPT_BYTES)
    except FileNotFoundError as error:
        what, why = "is gone", f"{bucket.uri}/{kept.key} does not exist"
        cause: Exception = error
    except ValueError as error:
        what, why, cause = "can't be used", f"{kept.key}: {error}", error
    raise UsageError(
        f"the journal of {trajectory.episode} {what}",
        why=why,
        fix="restore it from a backup, or fork another episode",
    ) from cause


async def _keep(bucket: Bucket, key_of: Callable[[str], str], data: bytes) -> tuple[str, int, str]:
    """Write an object unless it exists; return its key, size and SHA-256."""
    sha256 = (await asyncio.to_thread(hashlib.sha256, data)).hexdigest()
    key = key_of(sha256)
    packed = await asyncio.to_thread(pack, data, level=_LEVEL)
    try:
        await bucket.create(key, packed)
    except UnreachableError as error:
        raise StoreError(error.what, why=error.why, fix=error.fix) from error
    return key, len(data), sha256


async def _read(
    bucket: Bucket, kept: TestLog | KeptJournal, own_key: str, *, most: int = MAX_BYTES
) -> bytes:
    """Return the object that a record names, which must have the episode's own key.

    Raises FileNotFoundError, and ValueError if it does not match the record.
    """
    if kept.key != own_key:
        raise ValueError("its record names an object of another episode")
    packed = await bucket.get(kept.key)
    return await asyncio.to_thread(
        unpack_recorded, packed, size=kept.bytes, sha256=kept.sha256, most=most
    )


def pack(data: bytes, *, level: int) -> bytes:
    """Compress data into a frame; a higher `level`, 1 to 22, is smaller but slower."""
    return zstandard.ZstdCompressor(level=level, write_checksum=True).compress(data)


def unpack(packed: bytes) -> bytes:
    """Decompress a frame. Raises ValueError if it is damaged or too large."""
    try:
        if zstandard.frame_content_size(packed) > MAX_BYTES:
            raise ValueError(f"it unpacks to more than {MAX_BYTES >> 30} GiB")
        return zstandard.ZstdDecompressor().decompress(packed)
    except zstandard.ZstdError as error:
        raise ValueError(f"it is no whole zstd frame ({error})") from error


def unpack_recorded(packed: bytes, *, size: int, sha256: str, most: int = MAX_BYTES) -> bytes:
    """Decompress a frame whose content must have the recorded size and digest.

    Raises ValueError if it has not, or is larger than `most`.
    """
    try:
        found = zstandard.frame_content_size(packed)
        if found != size or not 0 <= found <= most:
            raise ValueError(f"it has {found} bytes, not {size}")
        data = zstandard.ZstdDecompressor().decompress(packed, max_output_size=size)
    except zstandard.ZstdError as error:
        raise ValueError(f"it is no whole zstd frame ({error})") from error
    if hashlib.sha256(data).hexdigest() != sha256:
        raise ValueError("its content is not what the record says")
    return data
