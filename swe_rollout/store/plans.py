"""Set up a job in its folder: record its owner, and create, extend or rebuild its plan.

Two namespaces may have jobs with the same name; sharing one store folder is a mistake.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from swe_rollout.errors import UsageError
from swe_rollout.store import layout
from swe_rollout.store.bucket import Bucket
from swe_rollout.store.damage import damaged_file, read_value
from swe_rollout.store.plan import Plan, PlannedInstance
from swe_rollout.types.trajectory import Trajectory

if TYPE_CHECKING:  # importing it takes a tenth of a second, and readers do not need it
    from swe_rollout.spec.job import RolloutJob

_MOVE_PLAN = "move it away and run the job again: its plan is made anew from the trajectories"


async def newest_plan(bucket: Bucket, job: str) -> tuple[int, Plan | None]:
    """Return the revision and the plan; revision 0 if there is none."""
    keys = bucket.keys(layout.plans_prefix(job))
    found = [n async for key in keys if (n := layout.parse_plan_key(key)) is not None]
    revision = max(found, default=1)
    fix = f"another version wrote it, or it is damaged; {_MOVE_PLAN}"
    plan = await read_value(bucket, layout.plan_key(job, revision), Plan, fix=fix)
    return (0 if plan is None else revision), plan


def extended_plan(
    bucket: Bucket, name: str, there: Plan, wanted: Plan, *, takes_code: bool = False
) -> Plan:
    """Return the existing plan extended by the episodes of `wanted`.

    Raises UsageError if its trajectories would not be comparable or it is damaged.
    """
    try:
        return there.extended(wanted, address=f"{bucket.uri}/{name}", takes_code=takes_code)
    except ValueError as error:
        key = layout.plan_key(name)
        raise damaged_file(f"{bucket.uri}/{key}", error, fix=_MOVE_PLAN) from error


async def plan_left_behind(
    bucket: Bucket, name: str, trajectories: AsyncIterator[Trajectory]
) -> Plan | None:
    """Rebuild a job's lost plan from its spec and its trajectories."""
    spec = await _spec(bucket, name)
    tasks, digests = dict[str, PlannedInstance](), set[str]()
    async for record in trajectories:
        episode = record.episode
        task = PlannedInstance(episode.instance, episode.sample + 1, record.instance_digest)
        tasks[task.id] = tasks.get(task.id, task).extended(task)
        digests.add(record.spec_digest)
    if spec is None and not tasks:
        return None
    if spec is not None and digests <= {spec.digest}:
        return Plan(tuple(tasks.values()), spec.digest, spec.to_yaml_dict())
    return Plan(tuple(tasks.values()), " and ".join(sorted(digests)), {})


async def _spec(bucket: Bucket, name: str) -> RolloutJob | None:
    # Readers do not need it, and so `status` starts in a quarter of the time.
    import yaml  # noqa: PLC0415

    from swe_rollout.spec.document import read_document  # noqa: PLC0415
    from swe_rollout.spec.job import RolloutJob  # noqa: PLC0415

    key = layout.job_key(name)
    try:
        text = (await bucket.get(key)).decode()
        # Bounded in size and depth, with aliases expanded; None otherwise.
        is_bounded = read_document(text, source=key).value is not None
        return RolloutJob.model_validate(yaml.safe_load(text) if is_bounded else None)
    except FileNotFoundError:
        return None
    except (yaml.YAMLError, ValueError) as error:
        fix = "another version wrote it, or it is damaged; move it away and run the job again"
        raise damaged_file(f"{bucket.uri}/{key}", error, fix=fix) from error


@dataclass(frozen=True, slots=True)
class Owner:
    """A namespace of a cluster. The job's own name is part of its address."""

    namespace: str
    cluster: str
    """Identifies the cluster, such as a fingerprint of the API server's authority."""

    def __str__(self) -> str:
        return f"namespace {self.namespace} of cluster {self.cluster}"


async def read_owner(bucket: Bucket, job: str) -> Owner | None:
    """Return the owner of the job, or None if no cluster has run it."""
    fix = "restore it, or delete it if you know whose job it is"
    return await read_value(bucket, layout.owner_key(job), Owner, fix=fix)


async def claim_job(bucket: Bucket, job: str, owner: Owner | None) -> tuple[str, ...]:
    """Claim the job for `owner`. Raises UsageError if it belongs to another."""
    address = f"{bucket.uri}/{job}"
    key = layout.owner_key(job)
    if owner is not None and await bucket.create(key, msgspec.json.encode(owner)):
        return ()
    there = await read_owner(bucket, job)
    if owner is None:
        return () if there is None else (f"{address} is a job of {there}; this run joins it",)
    if there is not None and there != owner:
        raise UsageError(
            f"{address} belongs to a job of {there}",
            why=f"this job is of {owner}, and would take its episodes for its own",
            fix="give this job another metadata.name, or another store.uri; to hand the episodes "
            f"over to this namespace, delete {address}/owner.json first",
        )
    return ()
