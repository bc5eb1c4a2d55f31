"""Find jobs by address: in a store (`runs/demo`, `s3://rollouts/demo`), or by name on the cluster
(`demo`, `ns/demo`), whose job object names the store.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from swe_rollout.errors import PrerequisiteError, UsageError
from swe_rollout.store.layout import JobRef
from swe_rollout.store.store import Store

if TYPE_CHECKING:
    from swe_rollout.cluster.job_objects import JobObject

_NAME = r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?"


@dataclass(frozen=True, slots=True)
class JobLocation:
    """Where to look for a job on a cluster: the options `-n` and `--context`."""

    namespace: str | None = None
    context: str | None = None

    @property
    def given(self) -> bool:
        """Whether either option was given: then the job is searched on the cluster only."""
        return self.namespace is not None or self.context is not None


@dataclass(frozen=True, slots=True)
class ClusterJobName:
    """The name of a job on the cluster."""

    name: str
    namespace: str | None
    """None: the context's."""


def parse_job_name(address: str, location: JobLocation) -> ClusterJobName:
    """Parse `demo` or `ns/demo`; raises UsageError for any other form."""
    from swe_rollout.cli.address_hints import local_job

    if not location.given and (job := local_job(address)) is not None:
        raise UsageError(
            f"{address} is a job in a folder of this machine, and not on the cluster",
            why="the process that runs it prints its log and is stopped by ^C",
            fix=f"`swe-rollout status {job}` and `swe-rollout view {job}` read it; a job on the "
            "cluster is named demo or ns/demo",
        )
    match = re.fullmatch(rf"(?:(?P<ns>{_NAME})/)?(?P<name>{_NAME})", address)
    if match is None or (match["ns"] and location.namespace not in (None, match["ns"])):
        raise UsageError(
            f"{address!r} does not name a job on the cluster",
            fix="write its name, such as demo, and its namespace as -n NS or as ns/demo",
        )
    return ClusterJobName(match["name"], match["ns"] or location.namespace)


def _is_cluster_name(address: str) -> bool:
    return re.fullmatch(rf"({_NAME}/)?{_NAME}", address) is not None


async def find_job(address: str, location: JobLocation) -> JobObject:
    """The job on the cluster; raises UsageError when there is none."""
    # It takes half a second, and jobs in a store do without.
    from swe_rollout.launcher.remote import open_jobs

    wanted = parse_job_name(address, location)
    async with open_jobs(location.context) as jobs:
        return await jobs.get(wanted.namespace or jobs.namespace, wanted.name)


async def find_ref(address: str, location: JobLocation) -> JobRef:
    """The job's folder in its store, from the address itself or from the job on the cluster."""
    found = await find_either(address, location)
    return found if isinstance(found, JobRef) else JobRef(found.spec.store.uri, found.name)


async def find_either(address: str, location: JobLocation) -> JobRef | JobObject:
    """The job in a store, otherwise the one on the cluster; raises UsageError for neither."""
    if location.given:
        return await find_job(address, location)
    try:
        ref = JobRef.parse(address)
        await Store.open(ref.store_uri).plan(ref.job)
    except UsageError as error:
        from swe_rollout.cli.address_hints import job_in_other_folder, job_named_wrongly

        not_in_store = error
        if (better := job_named_wrongly(address)) is not None:
            raise better from error
        if meant := job_in_other_folder(address):
            fix = f"did you mean {meant}?"
            not_in_store = UsageError(not_in_store.what, why=not_in_store.why, fix=fix)
        if "://" in address or not _is_cluster_name(address):
            raise not_in_store from error
        return await _find_on_cluster(address, location, not_in_store)
    return ref


async def _find_on_cluster(
    address: str, location: JobLocation, not_in_store: UsageError
) -> JobObject:
    """The job on the cluster. Otherwise report the store's error, with the cluster's as context."""
    try:
        return await find_job(address, location)
    except (UsageError, PrerequisiteError) as error:
        raise UsageError(
            not_in_store.what,
            why=f"{not_in_store.why}; on the cluster: {error.what}",
            fix=not_in_store.fix,
        ) from error
