"""Single objects by their full address: dataset files, not trajectories. Used by the loaders."""

from __future__ import annotations

from dataclasses import dataclass

from swe_rollout.errors import UsageError
from swe_rollout.store.bucket import Bucket


async def read_object(uri: str) -> bytes:
    """The bytes at `file:///folder/rows.jsonl` or `s3://bucket/rows.jsonl`.

    Raises FileNotFoundError when there is nothing, UnreachableError when it can't be read.
    """
    place = _split(uri)
    return await Bucket.open(place.parent).get(place.name)


async def create_object(uri: str, data: bytes) -> bool:
    """Write the object unless there is one; whether it was written. Raises UnreachableError."""
    place = _split(uri)
    return await Bucket.open(place.parent).create(place.name, data)


@dataclass(frozen=True, slots=True)
class _Place:
    parent: str
    name: str


def _split(uri: str) -> _Place:
    parent, _, name = uri.rpartition("/")
    if not name or parent.endswith(":/"):
        raise UsageError(
            f"{uri!r} does not name an object",
            fix="write file:///folder/name or s3://bucket/name",
        )
    return _Place(parent, name)
