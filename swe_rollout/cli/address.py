"""What people call a job: a place in a store (`runs/demo`, `s3://rollouts/demo`), or a name on the
cluster (`demo`, `ns/demo`), whose store the cluster knows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from swe_rollout.errors import PrerequisiteError, UsageError
from swe_rollout.launcher.remote import open_jobs
from swe_rollout.store.layout import JobRef
from swe_rollout.store.store import Store

if TYPE_CHECKING:
    from swe_rollout.cluster.job_objects import JobObject

_NAME = r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?"


@dataclass(frozen=True, slots=True)
class Place:
    """Where on which cluster: what `-n` and `--context` say."""

    namespace: str | None = None
    context: str | None = None

    @property
    def named(self) -> bool:
        """Whether a person named it: then a job is looked for there and nowhere else."""
        return self.namespace is not None or self.context is not None


@dataclass(frozen=True, slots=True)
class JobName:
    """A job on the cluster."""

    name: str
    namespace: str | None
    """None: the context's."""


def job_name(address: str, place: Place) -> JobName:
    """The job that `demo` or `ns/demo` names; UsageError for any other form."""
    match = re.fullmatch(rf"(?:(?P<ns>{_NAME})/)?(?P<name>{_NAME})", address)
    if match is None or (match["ns"] and place.namespace not in (None, match["ns"])):
        raise UsageError(
            f"{address!r} does not name a job on the cluster",
            fix="write its name, such as demo; its namespace by -n, or as ns/demo",
        )
    return JobName(match["name"], match["ns"] or place.namespace)


async def find_job(address: str, place: Place) -> JobObject:
    """The job on the cluster; UsageError when there is none."""
    wanted = job_name(address, place)
    async with open_jobs(place.context) as jobs:
        return await jobs.get(wanted.namespace or jobs.namespace, wanted.name)


async def find_ref(address: str, place: Place) -> JobRef:
    """Where the job's trajectories are: the address itself, or what the cluster says."""
    found = await find_either(address, place)
    return JobRef(found.spec.store.uri, found.name) if not isinstance(found, JobRef) else found


async def find_either(address: str, place: Place) -> JobRef | JobObject:
    """The job in a store, or else the one on the cluster; UsageError when there is neither."""
    if place.named:
        return await find_job(address, place)
    ref = JobRef.parse(address)
    try:
        await Store.open(ref.store_uri).plan(ref.job)
    except UsageError as absent:
        if "://" in address:
            raise
        return await _on_cluster(address, place, absent)
    return ref


async def _on_cluster(address: str, place: Place, absent: UsageError) -> JobObject:
    """The job on the cluster; where there is no cluster, it is the store that lacks the job."""
    try:
        return await find_job(address, place)
    except (UsageError, PrerequisiteError) as error:
        raise UsageError(
            absent.what, why=f"{absent.why}; on the cluster: {error.what}", fix=absent.fix
        ) from error
