"""Whose job it is: the cluster and namespace whose workers run it.

Two namespaces may have jobs of one name; they are one job in a store only by mistake.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from swe_rollout.errors import UsageError
from swe_rollout.store import layout
from swe_rollout.store.bucket import Bucket
from swe_rollout.store.damage import UNDECODABLE, damaged_file


@dataclass(frozen=True, slots=True)
class Owner:
    """A namespace of a cluster. The job's own name is part of its address."""

    namespace: str
    cluster: str
    """What tells clusters apart, such as a fingerprint of the API server's authority."""

    def __str__(self) -> str:
        return f"namespace {self.namespace} of cluster {self.cluster}"


def owned_by_another(address: str, owner: Owner, now: Owner) -> UsageError:
    """Return the error for a job that the workers of another namespace have begun."""
    return UsageError(
        f"{address} belongs to a job of {owner}",
        why=f"this job is of {now}, and would take its episodes for its own",
        fix="give this job another metadata.name, or another store.uri; to hand the episodes over "
        f"to this namespace, delete {address}/owner.json first",
    )


async def read_owner(bucket: Bucket, job: str) -> Owner | None:
    """Return the owner of the job; none when no cluster has run it."""
    key = layout.owner_key(job)
    try:
        return msgspec.json.decode(await bucket.get(key), type=Owner)
    except FileNotFoundError:
        return None
    except UNDECODABLE as error:
        fix = "restore it, or delete it if you know whose job it is"
        raise damaged_file(f"{bucket.uri}/{key}", error, fix=fix) from error


async def claim_job(bucket: Bucket, job: str, owner: Owner | None) -> tuple[str, ...]:
    """Make the job the owner's. Raises UsageError when it is another's."""
    address = f"{bucket.uri}/{job}"
    key = layout.owner_key(job)
    if owner is not None and await bucket.create(key, msgspec.json.encode(owner)):
        return ()
    there = await read_owner(bucket, job)
    if owner is None:
        return () if there is None else (f"{address} is a job of {there}; this run joins it",)
    if there is not None and there != owner:
        raise owned_by_another(address, there, owner)
    return ()
