"""Hand each group of a job to a trainer once, and watch the quality of what it gets."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, replace
from typing import Self

import structlog

from swe_rollout.errors import UsageError
from swe_rollout.store.claims import Claim, Claims, ClaimState
from swe_rollout.training.groups import Group
from swe_rollout.training.sample_bounds import (
    FailureRate,
    FailureRateError,
    StaleAction,
    Staleness,
    WeightClock,
)

log = structlog.get_logger()


@dataclass(slots=True)
class GroupCounts:
    """What happened to the groups that one trainer process encountered."""

    handed_out: int = 0
    """Groups handed out to the process."""
    short: int = 0
    """Groups handed out with fewer samples than wanted."""
    without_signal: int = 0
    """Groups handed out with equal rewards."""
    stale: int = 0
    """Groups handed out that lag behind the announced weights by more than the bound."""
    dropped: int = 0
    """Groups not handed out because they were too stale."""
    empty: int = 0
    """Groups not handed out because every sample failed."""
    failed_samples: int = 0
    """Samples that failed, replaced or not, in all of these groups."""
    duplicates: int = 0
    """Samples that came more than once."""


@dataclass(frozen=True, slots=True)
class Watch:
    """What a trainer requires of the groups it gets."""

    failure_rate: FailureRate
    staleness: Staleness | None = None


class Handout:
    """Claims groups for one trainer process, and settles the claims when it is done."""

    def __init__(self, job: str, claims: Claims, watch: Watch) -> None:
        self.claims = claims
        self.counts = GroupCounts()
        self.clock = WeightClock()
        self._job = job
        self._watch = watch
        self._open: dict[str, Claim] = {}

    async def begin(self, trained: Iterable[str]) -> None:
        """Read the claims, and mark as trained the groups that a checkpoint lists as trained."""
        await self.claims.refresh()
        await self.claims.settle(map(self._instance, trained))

    async def offer(self, group: Group, claim: Claim) -> Group | None:
        """Return a claimed group as the trainer gets it; None if it is not worth training on.

        Raises FailureRateError if too many samples failed, and gives the group back first.
        """
        self.counts.failed_samples += len(group.failed)
        self.counts.duplicates += group.duplicates
        try:
            owners = [*(each.owner for each in group.failed), *(None for _ in group.trajectories)]
            self._watch.failure_rate.add(owners)
        except FailureRateError:
            await self.claims.finish(claim, ClaimState.RELEASED, note="failure rate")
            raise
        if not group.trajectories:
            self.counts.empty += 1
            await self._skip(group, claim, "every sample failed")
            return None
        found = self._dated(group)
        if found.stale and self._drops_stale:
            self.counts.dropped += 1
            await self._skip(found, claim, f"its lag is {found.lag}")
            return None
        self._count(found)
        self._open[found.group_id] = claim
        return found

    async def settle(self, group: Group | str, state: ClaimState) -> None:
        """End the claim on a handed-out group. Raises UsageError for any other group."""
        group_id = group if isinstance(group, str) else group.group_id
        claim = self._open.get(group_id)
        if claim is None:
            raise UsageError(
                f"{group_id} is not claimed by this process",
                why="it was not handed out here, or acknowledged or given back before",
                fix="acknowledge each group once, where it was handed out",
            )
        await self.claims.finish(claim, state)
        del self._open[group_id]

    def _instance(self, group_id: str) -> str:
        job, _, instance = group_id.partition("/")
        if job != self._job or not instance:
            raise UsageError(f"{group_id!r} is no group of {self._job}", fix="write job/instance")
        return instance

    def _dated(self, group: Group) -> Group:
        lag = self.clock.lag(group.weight_versions)
        bound = self._watch.staleness
        stale = bound is not None and lag is not None and lag > bound.max_lag
        return replace(group, lag=lag, stale=stale)

    @property
    def _drops_stale(self) -> bool:
        bound = self._watch.staleness
        return bound is not None and bound.action is StaleAction.DROP

    async def _skip(self, group: Group, claim: Claim, why: str) -> None:
        log.warning("group_skipped", group=group.group_id, why=why, failed=len(group.failed))
        await self.claims.finish(claim, ClaimState.SKIPPED, note=why)

    def _count(self, group: Group) -> None:
        self.counts.handed_out += 1
        self.counts.short += group.is_short
        self.counts.without_signal += not group.has_signal
        self.counts.stale += group.stale
        if group.is_short:
            log.warning(
                "group_short",
                group=group.group_id,
                samples=len(group.trajectories),
                wanted=group.wanted,
                owners=sorted({each.owner.value for each in group.failed}),
            )


class GroupSource(ABC):
    """The groups of a job, each handed to one process of a trainer. Iterate with `async for`.

    A group is claimed before it is handed out. Acknowledge it with `ack` once its update can't be
    lost any more; until then it is unfinished, and only a later epoch of the trainer gets it again.
    """

    def __init__(self, handout: Handout) -> None:
        self._handout = handout
        self._kept: deque[Group] = deque()
        """Groups that were claimed for calls cancelled in the meantime."""
        self._claiming: set[asyncio.Future[Group | None]] = set()
        """The unfinished remainders of such calls."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Group:
        found = await self.next()
        if found is None:
            raise StopAsyncIteration
        return found

    @abstractmethod
    async def next(self) -> Group | None:
        """Return the next group; None after the last one. A cancelled call loses no group."""

    async def _finished(self, claiming: Coroutine[None, None, Group | None]) -> Group | None:
        """Finish claiming a group even if the caller is cancelled, for the next call."""
        task = asyncio.ensure_future(claiming)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._claiming.add(task)
            task.add_done_callback(self._keep)
            raise

    async def _kept_group(self) -> Group | None:
        """Return a group that a cancelled call would have returned; None if there is none."""
        while self._claiming and not self._kept:
            await asyncio.wait(self._claiming, return_when=asyncio.FIRST_COMPLETED)
        return self._kept.popleft() if self._kept else None

    def _keep(self, task: asyncio.Future[Group | None]) -> None:
        self._claiming.discard(task)
        if not task.cancelled() and task.exception() is None and (group := task.result()):
            self._kept.append(group)

    @property
    def counts(self) -> GroupCounts:
        """The counts of the groups so far."""
        return replace(self._handout.counts)

    def announce(self, version: str | int) -> None:
        """Announce the weight version that the engines use from now on."""
        self._handout.clock.announce(version)

    async def ack(self, group: Group | str) -> None:
        """Mark a group as trained, for good. Raises ClaimLostError if a later epoch has it now."""
        await self._handout.settle(group, ClaimState.TRAINED)

    async def release(self, group: Group | str) -> None:
        """Give a group back untrained: the next caller may get it, even in this process."""
        await self._handout.settle(group, ClaimState.RELEASED)
