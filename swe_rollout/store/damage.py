"""Committed records that can't be read: they are reported and skipped, never deleted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import msgspec

from swe_rollout.errors import StoreError
from swe_rollout.store.bucket import Bucket
from swe_rollout.types.episode import EpisodeId

T = TypeVar("T")
UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors that msgspec raises for malformed objects."""
RERUN = "`swe-rollout run JOB.yaml --rerun-damaged` moves it aside and rolls it out again"


@dataclass(frozen=True, slots=True)
class DamagedRecord:
    """The record of a committed episode that can't be read."""

    episode: EpisodeId
    address: str
    """Address of the object."""
    why: str
    is_refused: bool = False
    """Whether this user may not read it, so that it may be whole."""

    def __str__(self) -> str:
        return f"{self.address} is {'refused' if self.is_refused else 'damaged'}: {self.why}"

    def require_read(self) -> None:
        """Raise StoreError if nobody has seen what is wrong with it."""
        if self.is_refused:
            fix = "give this user access to it, as it may be whole"
            raise StoreError(
                f"{self.address} can't be read", why=self.why, fix=fix, retryable=False
            )


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
    """Return the JSON at `key` as a value of type `kind`, or None if there is no object.

    Raises StoreError, with `fix`, for an object of another form.
    """
    try:
        return msgspec.json.decode(await bucket.get(key), type=kind)
    except FileNotFoundError:
        return None
    except UNDECODABLE as error:
        raise damaged_file(f"{bucket.uri}/{key}", error, fix=fix) from error


def damaged_file(address: str, error: Exception, *, fix: str) -> StoreError:
    """Return the error for an unreadable file of a job other than a trajectory."""
    return StoreError(f"{address} can't be read", why=str(error), fix=fix, retryable=False)
