"""Supplement a followed cluster job from its records: turns, groups, rewards, failures by owner.

The job's status counts episodes; the rest is in the store, which is read with the follower's own
credentials. If it can't be read, only the status is shown.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from swe_rollout.cli.stored_display import WatchedStore, rest_s
from swe_rollout.errors import SweRolloutError, UsageError
from swe_rollout.store.layout import JobRef
from swe_rollout.store.store import Store

if TYPE_CHECKING:
    from swe_rollout.cluster.job_objects import JobObject
    from swe_rollout.live.progress import LiveProgress, LiveTitle
    from swe_rollout.live.snapshot import Snapshot

MOST_EARLIER: Final = 5000
"""The most records read at the start; for a larger job, only later ones are read."""
_LAST_S: Final = 5.0
"""How long to read the records of the episodes committed at the very end."""
_SLOWER: Final = 10.0
"""How long to wait before retrying a store that can't be read."""


class JobRecords:
    """Reads the records of a job while its status is followed."""

    def __init__(
        self,
        job: JobObject,
        on_note: Callable[[str], None],
        *,
        open_progress: Callable[[LiveTitle], LiveProgress] | None = None,
    ) -> None:
        """`open_progress` creates the counter of records, by default a plain LiveProgress."""
        self._job = job
        self._ref = JobRef(job.spec.store.uri, job.name)
        self._on_note = on_note
        self._open_progress = open_progress
        self._watched: WatchedStore | None = None
        self._is_whole = False
        self._is_closed = False
        """Whether the store can't be read from here."""

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """Read new records while the block runs, and once more at its end."""
        reader = asyncio.create_task(self._read_on())
        try:
            yield
            reader.cancel()
            with suppress(asyncio.CancelledError):
                await reader
            if self._is_closed:
                return
            with suppress(SweRolloutError, TimeoutError):
                async with asyncio.timeout(_LAST_S):
                    await self._read()
        finally:
            reader.cancel()

    def added_to(self, status: Snapshot) -> Snapshot:
        """Return the snapshot of the status, supplemented from the records."""
        if self._is_closed or self._watched is None:
            return status
        seen = self._watched.progress.snapshot()
        if not self._is_whole:
            return replace(status, records=seen.records)
        return replace(
            status,
            records=seen.records,
            verdicts=seen.verdicts,
            failures=seen.failures,
            outcomes=seen.outcomes,
        )

    async def _read_on(self) -> None:
        while True:
            began_s = time.monotonic()
            rest = 1.0
            try:
                await self._read()
            except UsageError:
                pass  # the store has no such job until its first worker has planned it
            except SweRolloutError as error:
                rest = _SLOWER
                if not self._is_closed:
                    self._is_closed = True
                    self._on_note(f"turns, groups and single rewards are not shown: {error}")
            await asyncio.sleep(rest * rest_s(self._ref, time.monotonic() - began_s))

    async def _read(self) -> None:
        if self._watched is None:
            self._watched = await self._open()
        if self._watched is not None:
            await self._watched.poll()
            self._is_closed = False

    async def _open(self) -> WatchedStore | None:
        """Open the job's records; return None while the store has none of this job."""
        store = Store.open(self._ref.store_uri)
        watched = WatchedStore(store, self._ref.job)
        await watched.read_plan()
        # Clusters look different from inside and outside; namespaces do not.
        owner = await store.owner(self._ref.job)
        if owner is None or owner.namespace != self._job.namespace:
            return None
        if self._open_progress is not None:
            watched.progress = self._open_progress(watched.title)
        await self._skip_earlier(watched, len((await store.listing(self._ref.job)).episodes))
        return watched

    async def _skip_earlier(self, watched: WatchedStore, earlier: int) -> None:
        """Skip existing records if there are too many, with a note."""
        self._is_whole = earlier <= MOST_EARLIER
        if not self._is_whole:
            await watched.tally.skip_listed()
            self._on_note(
                f"turns, groups and single rewards are those from now on; all {earlier} records: "
                f"swe-rollout watch {self._ref}"
            )
