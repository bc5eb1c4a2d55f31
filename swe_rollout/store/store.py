"""Store: the record of a job. A trajectory is committed once, whatever crashes or repeats.

Workers write it; exports, the viewer and the command line read it. It needs no cluster.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

import msgspec

from swe_rollout.errors import StoreError, UnreachableError, UsageError
from swe_rollout.store import layout
from swe_rollout.store.ahead import FetchedAhead
from swe_rollout.store.bucket import Bucket, CallListener
from swe_rollout.store.claims import Claimant, Claims
from swe_rollout.store.damage import DamagedRecord, DamagedRecordError, read_value
from swe_rollout.store.faults import OF_ONE_FILE
from swe_rollout.store.journals import Journals
from swe_rollout.store.kept import keep_journal, keep_log, pack, read_journal, read_log, unpack
from swe_rollout.store.plan import Plan
from swe_rollout.store.plans import (
    Owner,
    claim_job,
    extended_plan,
    newest_plan,
    plan_left_behind,
    read_owner,
)
from swe_rollout.text.paths import instead
from swe_rollout.types.episode import EpisodeId, KeptJournal
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.trajectory_json import from_json, to_json
from swe_rollout.types.verdict import TestLog

if TYPE_CHECKING:  # importing it takes a tenth of a second, and readers do not need it
    from swe_rollout.spec.job import RolloutJob

_LEVEL = 6
_READ_AHEAD = 8


@dataclass(frozen=True, slots=True)
class Listing:
    """The contents of a job's folder of episodes."""

    episodes: frozenset[EpisodeId]
    """Episodes that have a trajectory, readable or not."""
    strays: tuple[str, ...]
    """Objects whose names are not those of trajectories; they are left alone."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A job that was started, now or earlier."""

    plan: Plan
    notes: tuple[str, ...]
    """Notes for people about an earlier run that it joined."""


class Store:
    """The jobs at one address and their trajectories. Safe for concurrent use, across processes."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    @classmethod
    def open(cls, uri: str) -> Self:
        """Open the store at `uri` (see `Bucket.open`); a folder is created by the first write."""
        return cls(Bucket.open(uri))

    @property
    def uri(self) -> str:
        """The store's address."""
        return self._bucket.uri

    async def begin(
        self,
        job: RolloutJob,
        instances: Mapping[str, str],
        *,
        owner: Owner | None = None,
        quarantined: Mapping[str, str] = MappingProxyType({}),
        takes_code: bool = False,
    ) -> Begun:
        """Write the job and its plan, or extend the existing plan.

        `instances` maps ids to content digests; `quarantined` maps skipped ids to reasons; `owner`
        claims the job; with `takes_code`, its files may have changed. Raises UsageError if the
        store has a job of that name whose trajectories are not comparable with this one's.
        """
        name = job.metadata.name
        wanted, address = Plan.of(job, instances, quarantined), f"{self.uri}/{name}"
        while True:
            revision, there = await newest_plan(self._bucket, name)
            before = there or await plan_left_behind(
                self._bucket, name, self.trajectories(name, on_damage=lambda _: None)
            )
            plan = wanted
            if before is not None:
                plan = extended_plan(self._bucket, name, before, wanted, takes_code=takes_code)
            notes = await claim_job(self._bucket, name, owner)
            # If several processes write a plan now, one is first, and the others read its plan.
            if plan is there or await self._bucket.create(
                layout.plan_key(name, revision + 1), msgspec.json.encode(plan)
            ):
                break
        import yaml  # noqa: PLC0415 - readers do without

        document = yaml.safe_dump(job.to_yaml_dict(), sort_keys=False, allow_unicode=True)
        await self._bucket.create(layout.job_key(name), document.encode())
        if before is not None and before.episodes != plan.episodes:
            notes += (f"{address} grows from {before.episodes} to {plan.episodes} episodes",)
        if stopped := plan.quarantined.keys() & plan.order().keys():
            tasks = f"{len(stopped)} tasks that {address} has planned, such as {min(stopped)},"
            notes += (f"{tasks} are in quarantine: their episodes stay planned, none is run",)
        return Begun(plan, notes)

    def observe(self, listener: CallListener) -> None:
        """Notify `listener` of the outcome of each call to the store, journals included."""
        self._bucket.observe(listener)

    async def plan(self, job: str) -> Plan:
        """Return the job's plan. Raises UsageError if this store has no such job."""
        _, plan = await newest_plan(self._bucket, job)
        if plan is not None:
            return plan
        if await self.committed(job):
            raise UsageError(
                f"the plan of {job} is missing",
                why=f"{self.uri}/{layout.plan_key(job)} does not exist, but it has trajectories",
                fix="run the job again: its plan is made anew from the trajectories",
            )
        raise UsageError(
            f"the store {self.uri} has no job {job}",
            why=self._bucket.why_missing(layout.plan_key(job)),
            fix=instead(job, await self.jobs())
            or "check the address: the store, a slash, the job's name",
        )

    async def set_refills(self, job: str, refills: int) -> None:
        """Record how often a failed sample of the job is replaced, unless recorded already.

        Raises UsageError if the recorded number differs, because readers of the store rely on it.
        """
        if await self._bucket.create(layout.refills_key(job), msgspec.json.encode(refills)):
            return
        if (there := await self.refills(job)) != refills:
            raise UsageError(
                f"{self.uri}/{job} replaces a failed sample {there} times, not {refills}",
                why="it was begun so, and readers of the store wait for these samples",
                fix=f"use refills={there}, or give this job another metadata.name",
            )

    async def refills(self, job: str) -> int:
        """Return how often a failed sample of the job is replaced; 0 if it never is."""
        key = layout.refills_key(job)
        return await read_value(self._bucket, key, int, fix="restore or delete it") or 0

    def claims(self, job: str, claimant: Claimant) -> Claims:
        """Return a trainer's claims to the job's groups. Nothing is read yet."""
        return Claims(self._bucket, job, claimant)

    def journals(self, job: str) -> Journals:
        """Return the journals of the job's episodes. Nothing is read yet."""
        return Journals(self._bucket, job)

    async def owner(self, job: str) -> Owner | None:
        """Return the owner of the job, or None if no cluster has run it."""
        return await read_owner(self._bucket, job)

    async def jobs(self) -> tuple[str, ...]:
        """Return the names of the store's jobs, sorted."""
        names = await self._bucket.folders()
        return tuple([name for name in names if await self._is_job(name)])

    async def begun_at(self, job: str) -> datetime:
        """Return when the job was begun. Raises FileNotFoundError if there is no plan of it."""
        return await self._bucket.written_at(layout.plan_key(job))

    async def commit(self, trajectory: Trajectory) -> bool:
        """Write the trajectory unless its episode has one; return whether this call wrote it.

        It returns False also if an earlier attempt succeeded without a response. Raises StoreError
        if the store refuses or does not respond.
        """
        key = layout.trajectory_key(trajectory.episode)
        data = await asyncio.to_thread(pack, to_json(trajectory), level=_LEVEL)
        try:
            return await self._bucket.create(key, data)
        except UnreachableError as error:
            raise StoreError(error.what, why=error.why, fix=error.fix) from error

    async def keep_log(self, episode: EpisodeId, data: bytes) -> TestLog:
        """Write a test log beside its episode's record, before the record itself.

        Its key depends on its content, so no log is ever replaced, even if other processes play the
        episode; the record names its own. Credentials in use are removed. Raises StoreError.
        """
        return await keep_log(self._bucket, episode, data)

    async def read_log(self, episode: EpisodeId) -> bytes:
        """Return the test log of a committed episode.

        Raises UsageError if its record names none, StoreError if the log does not match the record.
        """
        trajectory = await self.read(episode)
        return await read_log(self._bucket, trajectory)

    async def keep_journal(self, episode: EpisodeId, data: bytes) -> KeptJournal:
        """Write the journal that forks of the episode start from. Raises StoreError."""
        return await keep_journal(self._bucket, episode, data)

    async def read_journal(self, trajectory: Trajectory) -> bytes:
        """Return the journal that forks of a committed episode start from.

        Raises UsageError if its record names none or the journal does not match the record.
        """
        return await read_journal(self._bucket, trajectory)

    async def listing(self, job: str) -> Listing:
        """List the job's episodes, and any other objects among them."""
        episodes, strays = set(), []
        async for key in self._bucket.keys(layout.episodes_prefix(job)):
            if (episode := layout.parse_trajectory_key(key)) is not None:
                episodes.add(episode)
            elif not (layout.is_log_key(key) or layout.is_kept_journal_key(key)):
                strays.append(os.fsencode(key).decode(errors="backslashreplace"))
        return Listing(frozenset(episodes), tuple(sorted(strays)))

    async def committed(self, job: str) -> frozenset[EpisodeId]:
        """Return the episodes of the job that have a trajectory, readable or not."""
        return (await self.listing(job)).episodes

    async def read(self, episode: EpisodeId) -> Trajectory:
        """Return the trajectory of a committed episode.

        Raises UsageError if there is none, DamagedRecordError if it can't be read.
        """
        found = await self.find(episode)
        if found is None:
            there = [str(each) for each in await self.committed(episode.job)]
            raise UsageError(
                f"{episode} is not in the store",
                why=f"{self.uri}/{layout.trajectory_key(episode)} does not exist",
                fix=instead(str(episode), there)
                or "check the address; only committed episodes are in the store",
            )
        return found

    async def find(
        self, episode: EpisodeId, fetched: Awaitable[bytes] | None = None
    ) -> Trajectory | None:
        """Return a trajectory; None if it is not committed. Raises DamagedRecordError."""
        try:
            data = await (fetched or self._fetch(episode))
        except FileNotFoundError:
            return None
        except UnreachableError as error:
            if isinstance(error.__cause__, OF_ONE_FILE):
                raise DamagedRecordError(self._damaged(episode, error.__cause__)) from error
            raise
        try:
            # Decode on this thread: msgspec inspects a class on first use, and two threads doing so
            # at once crash the interpreter.
            found = from_json(await asyncio.to_thread(unpack, data))
            if found.episode != episode:
                raise ValueError(f"it is the record of {found.episode}")  # noqa: TRY301 - damage
        except (ValueError, RecursionError) as error:
            raise DamagedRecordError(self._damaged(episode, error)) from error
        return found

    async def records(
        self, episodes: Iterable[EpisodeId]
    ) -> AsyncGenerator[Trajectory | DamagedRecord, None]:
        """Read committed episodes in order of instance, then sample; a few are fetched ahead."""
        ordered = sorted(episodes, key=attrgetter("sample"))
        ordered.sort(key=attrgetter("instance"))  # two sorts need no pair for each episode
        async with FetchedAhead(iter(ordered), self._fetch, _READ_AHEAD) as records:
            for episode, fetched in records:
                yield await self.record(episode, fetched)

    async def record(
        self, episode: EpisodeId, fetched: Awaitable[bytes] | None = None
    ) -> Trajectory | DamagedRecord:
        """Return a committed episode's trajectory, or a DamagedRecord if it is unreadable."""
        try:
            found = await self.find(episode, fetched)
        except DamagedRecordError as error:
            return error.record
        missing = FileNotFoundError("it does not exist")  # listed, but a dangling link
        return self._damaged(episode, missing) if found is None else found

    async def trajectories(
        self, job: str, *, on_damage: Callable[[DamagedRecord], None]
    ) -> AsyncIterator[Trajectory]:
        """Read all trajectories of the job in order of instance, then sample.

        Damaged records are reported and skipped.
        """
        async for record in self.records(await self.committed(job)):
            if isinstance(record, DamagedRecord):
                on_damage(record)
            else:
                yield record

    async def set_aside(self, episode: EpisodeId) -> str | None:
        """Move an episode's record aside if it is damaged; return its new address.

        The episode then counts as uncommitted. Only one process at a time may do this, while none
        rolls out the episode. Raises StoreError for a record that this user may not read.
        """
        if not isinstance(found := await self.record(episode), DamagedRecord):
            return None
        found.require_read()
        key = layout.damaged_key(episode, secrets.token_hex(4))
        await self._bucket.move(layout.trajectory_key(episode), key)
        return f"{self.uri}/{key}"

    async def move_aside(self, episode: EpisodeId) -> None:
        """Move the record of a masked episode aside, which then counts as uncommitted.

        Only one process at a time may do this, while no process rolls out the episode.
        """
        key = layout.masked_key(episode, secrets.token_hex(4))
        await self._bucket.move(layout.trajectory_key(episode), key)

    async def _fetch(self, episode: EpisodeId) -> bytes:
        return await self._bucket.get(layout.trajectory_key(episode))

    def _damaged(self, episode: EpisodeId, error: Exception) -> DamagedRecord:
        why = " ".join(str(error).split())[:300] or type(error).__name__
        address = f"{self.uri}/{layout.trajectory_key(episode)}"
        return DamagedRecord(episode, address, why, isinstance(error, PermissionError))

    async def _is_job(self, name: str) -> bool:
        with suppress(FileNotFoundError, UsageError):
            await self._bucket.get(layout.plan_key(name))
            return True
        return False
