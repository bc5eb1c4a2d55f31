"""Committed records that can't be read. They are named, left out, and never deleted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import msgspec

from swe_rollout.errors import StoreError
from swe_rollout.store.bucket import Bucket
from swe_rollout.types.episode import EpisodeId

T = TypeVar("T")
UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for an object that is not what it should be."""
RERUN = "`swe-rollout run JOB.yaml --rerun-damaged` moves it aside and rolls it out again"


@dataclass(frozen=True, slots=True)
class DamagedRecord:
    """The record of a committed episode that can't be read."""

    episode: EpisodeId
    address: str
    """Of the object."""
    why: str

    def __str__(self) -> str:
        return f"{self.address} is damaged: {self.why}"


class DamagedRecordError(StoreError):
    """A committed trajectory can't be read."""

    def __init__(self, record: DamagedRecord) -> None:
        super().__init__(
            f"{record.address} can't be read",
            why=record.why,
            fix=f"another version wrote it, or it is damaged; {RERUN}",
            retryable=False,
        )
        self.record = record


async def read_value(bucket: Bucket, key: str, kind: type[T], *, fix: str) -> T | None:
    """Return the JSON at `key` as a value of that type; none where there is no such object.

    Raises StoreError, with that fix, for an object that is something else.
    """
    try:
        return msgspec.json.decode(await bucket.get(key), type=kind)
    except FileNotFoundError:
        return None
    except UNDECODABLE as error:
        raise damaged_file(f"{bucket.uri}/{key}", error, fix=fix) from error


def damaged_file(address: str, error: Exception, *, fix: str) -> StoreError:
    """Return the error for a file of a job, beside its trajectories, that can't be read."""
    return StoreError(f"{address} can't be read", why=str(error), fix=fix, retryable=False)
