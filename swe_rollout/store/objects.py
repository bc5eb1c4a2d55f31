"""Single objects by their full address: dataset files, not trajectories. Used by the loaders."""

from __future__ import annotations

from swe_rollout.errors import UsageError
from swe_rollout.store.bucket import Bucket


async def read_object(uri: str) -> bytes:
    """The bytes at `file:///folder/rows.jsonl` or `s3://bucket/rows.jsonl`.

    Raises FileNotFoundError when there is nothing, UnreachableError when it can't be read.
    """
    parent, _, name = uri.rpartition("/")
    if not name or parent.endswith(":/"):
        raise UsageError(
            f"{uri!r} does not name an object",
            fix="write file:///folder/name or s3://bucket/name",
        )
    return await Bucket.open(parent).get(name)
