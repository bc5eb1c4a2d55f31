"""The logs of test runs: one object each, beside the record that names it.

<job>/episodes/<instance>/<sample>/test-<first 16 digits of its SHA-256>.log.zst
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import Final

from swe_rollout.errors import StoreError, UnreachableError, UsageError
from swe_rollout.store import layout
from swe_rollout.store.bucket import Bucket
from swe_rollout.store.kept import pack, unpack_recorded
from swe_rollout.text.redaction import redact_log
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.verdict import TestLog

_LEVEL: Final = 3


async def keep_log(bucket: Bucket, episode: EpisodeId, data: bytes) -> TestLog:
    """Write a log unless it is there already. Raises StoreError."""
    log, packed = await asyncio.to_thread(_packed, episode, data)
    try:
        await bucket.create(log.key, packed)
    except UnreachableError as error:
        raise StoreError(error.what, why=error.why, fix=error.fix) from error
    return log


async def read_log(bucket: Bucket, trajectory: Trajectory) -> bytes:
    """Return the log that a record names. Raises UsageError or StoreError."""
    log = trajectory.verdict.test_log if trajectory.verdict is not None else None
    if log is None or not log.key:
        raise UsageError(
            f"{trajectory.episode} has no test log",
            why=log.problem if log else "no tests ran, or an earlier version recorded it",
            fix="its end is on the episode's page: swe-rollout view",
        )
    address = f"{bucket.uri}/{log.key}"
    try:
        packed = await bucket.get(log.key)
        data = await asyncio.to_thread(unpack_recorded, packed, size=log.bytes, sha256=log.sha256)
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
    return data


def _packed(episode: EpisodeId, data: bytes) -> tuple[TestLog, bytes]:
    data = redact_log(data)
    sha256 = hashlib.sha256(data).hexdigest()
    log = TestLog(layout.log_key(episode, sha256), len(data), sha256)
    return log, pack(data, level=_LEVEL)
