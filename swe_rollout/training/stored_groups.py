"""Read the groups of a job from its store alone, as they become complete.

One poll costs a listing of the records and one of the trainer's claims (one request per 1,000
objects each), the plan, and each new claim. A group's records are read once, when all of them
exist.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import structlog
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_exponential

from swe_rollout.errors import UnreachableError, UsageError
from swe_rollout.store.claims import ClaimState
from swe_rollout.store.damage import DamagedRecordError
from swe_rollout.store.store import Store
from swe_rollout.training.assembly import Assembly
from swe_rollout.training.group_source import GroupSource, Handout
from swe_rollout.training.groups import Group
from swe_rollout.types.episode import EpisodeId

log = structlog.get_logger()
_T = TypeVar("_T")

_FIRST_POLL_S = 0.2
_GROWTH = 1.6
LONGEST_POLL_S = 15.0
_PATIENCE_S = 600.0
"""How long a previously reached store may be down."""


class StoredGroups(GroupSource):
    """The complete groups of a job in a store, in the order of its plan."""

    def __init__(
        self,
        store: Store,
        job: str,
        handout: Handout,
        *,
        wait_s: float | None,
        longest_poll_s: float = LONGEST_POLL_S,
    ) -> None:
        """Wait for further groups up to `wait_s` while none arrives; None waits forever."""
        super().__init__(handout)
        self._store = store
        self._job = job
        self._wait_s = wait_s
        self._longest_poll_s = longest_poll_s
        self._wanted: dict[str, int] = {}
        self._refills = 0
        self._there: dict[str, frozenset[int]] = {}
        self._seen: dict[str, frozenset[int]] = {}
        """The samples with which a group was last found incomplete."""
        self._ready: deque[str] = deque()
        self._begun = False

    async def next(self) -> Group | None:
        """Return the next group; None if all are done, or none arrived for `wait_s`."""
        pause_s, waited_s = _FIRST_POLL_S, 0.0
        while True:
            if (group := await self._group_at_hand()) is not None:
                return group
            await self._poll()
            if self._ready:
                continue
            if self._is_over() or (self._wait_s is not None and waited_s >= self._wait_s):
                return None
            left_s = self._longest_poll_s if self._wait_s is None else self._wait_s - waited_s
            # Otherwise all processes of a trainer that poll together would read the same group.
            nap_s = min(left_s, pause_s * random.uniform(0.7, 1.3))  # noqa: S311 - no secret
            await asyncio.sleep(nap_s)
            waited_s += nap_s
            pause_s = min(pause_s * _GROWTH, self._longest_poll_s)

    async def _group_at_hand(self) -> Group | None:
        if (group := await self._kept_group()) is not None:
            return group
        while self._ready:
            taking = self._take(self._ready.popleft())
            if (group := await self._finished(taking)) is not None:
                return group
        return None

    async def _poll(self) -> None:
        """List the records, and queue the groups that may be complete and are free."""
        if self._begun:
            await _patiently(self._list)
        else:
            await self._list()
            self._begun = True
        self._ready.extend(
            instance
            for instance, wanted in self._wanted.items()
            if self._handout.claims.is_free(instance)
            and self._there[instance] >= frozenset(range(wanted))
            and self._seen.get(instance) != self._there[instance]
        )

    async def _list(self) -> None:
        plan = await self._store.plan(self._job)
        self._refills = await self._store.refills(self._job)
        there = defaultdict[str, set[int]](set)
        for episode in await self._store.committed(self._job):
            there[episode.instance].add(episode.sample)
        await self._handout.claims.refresh()
        self._wanted = {each.id: each.samples for each in plan.instances}
        self._there = {each: frozenset(there[each]) for each in self._wanted}
        self._seen = {
            each: seen for each, seen in self._seen.items() if seen == self._there.get(each)
        }

    def _is_over(self) -> bool:
        return not any(map(self._handout.claims.is_free, self._wanted))

    async def _take(self, instance: str) -> Group | None:
        """Claim a group and read it; None if it is incomplete or claimed by another process."""
        if self._refills:
            return await self._take_refilled(instance)
        if (claim := await self._handout.claims.claim(instance)) is None:
            return None
        try:
            group = await self._assemble(instance)
        except UnreachableError:
            await self._handout.claims.finish(claim, ClaimState.RELEASED, note="store down")
            raise
        if group is None:
            await self._handout.claims.finish(claim, ClaimState.RELEASED, note="records gone")
            return None
        return await self._handout.offer(group, claim)

    async def _take_refilled(self, instance: str) -> Group | None:
        """Read a group before claiming it: only its records tell whether a sample is replaced."""
        if (group := await self._assemble(instance)) is None:
            return None
        claim = await self._handout.claims.claim(instance)
        return None if claim is None else await self._handout.offer(group, claim)

    async def _assemble(self, instance: str) -> Group | None:
        """Read a group; None while samples of it are missing."""
        samples, wanted = self._there[instance], self._wanted[instance]
        found = Assembly(f"{self._job}/{instance}", wanted=wanted, refills=self._refills)
        for sample in sorted(samples):
            await self._read(EpisodeId(self._job, instance, sample), found)
        if found.missing():
            self._seen[instance] = samples
            return None
        return found.group()

    async def _read(self, episode: EpisodeId, found: Assembly) -> None:
        try:
            found.add(await _patiently(partial(self._store.read, episode)))
        except DamagedRecordError as error:
            log.warning("damaged_record_left_out", object=error.record.address, why=error.why)
            found.add_damaged(error.record)
        except UsageError:
            log.warning("record_gone", episode=str(episode))


async def _patiently(call: Callable[[], Awaitable[_T]]) -> _T:
    """Repeat a call until the store, which was reached before, responds."""
    retrying = AsyncRetrying(
        retry=retry_if_exception_type(UnreachableError),
        stop=stop_after_delay(_PATIENCE_S),
        wait=wait_exponential(max=20),
        before_sleep=lambda state: log.warning("store_down", tried=state.attempt_number),
        reraise=True,
    )
    found: _T = await retrying(call)
    return found
