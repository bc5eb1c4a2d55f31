"""Find jobs by address: in a store (`runs/demo`, `s3://rollouts/demo`), or by name on the cluster
(`demo`, `ns/demo`), whose job object names the store.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from swe_rollout.cli.wrong_address import job_in_other_folder, job_named_wrongly, local_job
from swe_rollout.errors import PrerequisiteError, UsageError
from swe_rollout.store.layout import JobRef, store_uri
from swe_rollout.types.episode import EpisodeId

if TYPE_CHECKING:
    from swe_rollout.cluster.job_objects import JobObject
    from swe_rollout.cluster.jobs import Jobs
    from swe_rollout.store.store import Store

_NAME = r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?"


@dataclass(frozen=True, slots=True)
class JobLocation:
    """Where to look for a job on a cluster: the options `-n` and `--context`."""

    namespace: str | None = None
    context: str | None = None

    @property
    def given(self) -> bool:
        """Whether either option was given, which limits the search to the cluster."""
        return self.namespace is not None or self.context is not None


@dataclass(frozen=True, slots=True)
class ClusterJobName:
    """The name of a job on the cluster."""

    name: str
    namespace: str | None
    """None for the context's namespace."""


def parse_job_name(address: str, location: JobLocation) -> ClusterJobName:
    """Parse `demo` or `ns/demo`. Raises UsageError for any other form."""
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


@asynccontextmanager
async def open_job(address: str, location: JobLocation) -> AsyncIterator[tuple[Jobs, JobObject]]:
    """Connect to the job's cluster while the block runs. Raises UsageError if it lacks the job."""
    # Importing it takes half a second, and jobs in a store do not need it.
    from swe_rollout.launcher.remote import open_jobs

    wanted = parse_job_name(address, location)
    async with open_jobs(location.context) as jobs:
        yield jobs, await jobs.get(wanted.namespace or jobs.namespace, wanted.name)


async def find_job(address: str, location: JobLocation) -> JobObject:
    """Return the job on the cluster. Raises UsageError if there is none."""
    async with open_job(address, location) as (_, job):
        return job


async def find_ref(address: str, location: JobLocation) -> JobRef:
    """Return the job's folder in its store, from the address or from the job on the cluster."""
    found = await find_either(address, location)
    return found if isinstance(found, JobRef) else JobRef(found.spec.store.uri, found.name)


async def find_either(address: str, location: JobLocation) -> JobRef | JobObject:
    """Return the job in a store, or else on the cluster. Raises UsageError if there is neither."""
    if location.given:
        return await find_job(address, location)
    try:
        return await find_in_store(address)
    except UsageError as error:
        not_in_store = error
        if (better := job_named_wrongly(address)) is not None:
            raise better from error
        if meant := job_in_other_folder(address):
            fix = f"did you mean {meant}?"
            not_in_store = UsageError(not_in_store.what, why=not_in_store.why, fix=fix)
        if "://" in address or not _is_cluster_name(address):
            raise not_in_store from error
        return await _find_on_cluster(address, location, not_in_store)


async def find_in_store(address: str) -> JobRef:
    """Return the job in a store. Raises UsageError if there is none."""
    ref = JobRef.parse(address)
    await ViewTarget(ref, None).open_store().plan(ref.job)
    return ref


async def find_store(address: str) -> Store | None:
    """Return the store at the address, or None if a job, an episode or nothing is there.

    A folder without jobs is a store, too: its first job may be about to begin.
    """
    from swe_rollout.store.store import Store

    with suppress(UsageError):
        await find_in_store(address)
        return None
    with suppress(UsageError):
        store = Store.open(store_uri(address))
        if await store.jobs() or _may_become_store(address):
            return store
    return None


def _may_become_store(address: str) -> bool:
    is_folder = Path(address.removeprefix("file://")).is_dir()
    return is_folder and job_named_wrongly(address) is None


async def _find_on_cluster(
    address: str, location: JobLocation, not_in_store: UsageError
) -> JobObject:
    """Return the job on the cluster, or raise the store's error with the cluster's as context."""
    try:
        return await find_job(address, location)
    except (UsageError, PrerequisiteError) as error:
        raise UsageError(
            not_in_store.what,
            why=f"{not_in_store.why}; on the cluster: {error.what}",
            fix=not_in_store.fix,
        ) from error


@dataclass(frozen=True, slots=True)
class ViewTarget:
    """A job, or one of its episodes."""

    ref: JobRef
    episode: EpisodeId | None

    @property
    def name(self) -> str:
        """Return the name to use for a file about the target."""
        if self.episode is None:
            return self.ref.job
        return f"{self.ref.job}-{self.episode.instance}-{self.episode.sample}"

    def open_store(self) -> Store:
        """Open the store that holds the target."""
        from swe_rollout.store.store import Store

        return Store.open(self.ref.store_uri)


async def find_target(address: str, location: JobLocation) -> ViewTarget:
    """Resolve `address`. A job's name may look like a sample's, so the store decides."""
    match = re.fullmatch(r"(.+)/([^/]+)/([0-9]+)/?", address)
    if match is not None and not match[1].endswith(":/"):
        try:
            ref = await find_ref(match[1], location)
        except UsageError:
            pass
        else:
            return ViewTarget(ref, EpisodeId(ref.job, match[2], int(match[3])))
    return ViewTarget(await find_ref(address, location), None)


@dataclass(frozen=True, slots=True)
class LogFilter:
    """Selects all log lines of a job's workers, or those that name one episode."""

    job: str
    """`demo` or `ns/demo`."""
    episode: str | None
    """`INSTANCE/SAMPLE`."""

    @classmethod
    def parse(cls, address: str) -> Self:
        """Parse `demo`, `ns/demo`, `demo/INSTANCE/SAMPLE` or `ns/demo/INSTANCE/SAMPLE`."""
        match = re.fullmatch(r"(.+?)/([^/]+/[0-9]+)", address)
        return cls(match[1], match[2]) if match else cls(address, None)

    def matches(self, text: str) -> bool:
        """Whether the line is selected; to match an episode, it must have its whole address."""
        if self.episode is None:
            return True
        address = re.escape(f"{self.job.rpartition('/')[2]}/{self.episode}")
        return re.search(rf"(?<![^\s=\"'(]){address}(?![^\s\"'),:;])", text) is not None


async def find_targets(addresses: Sequence[str], location: JobLocation) -> list[ViewTarget]:
    """Find jobs or episodes. Raises UsageError for a mix of both, or for duplicates."""
    targets = [await find_target(each, location) for each in addresses]
    if len({target.episode is None for target in targets}) > 1:
        raise UsageError(
            "a job can't be compared with an episode",
            fix="name two jobs, or two episodes as JOB/INSTANCE/SAMPLE",
        )
    if len(set(targets)) < len(targets):
        raise UsageError(f"{addresses[0]} can't be compared with itself", fix="name another OTHER")
    return targets
