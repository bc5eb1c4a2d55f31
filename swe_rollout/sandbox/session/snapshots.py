"""The snapshots of one session: what was recorded when, and the requests for it, one by one."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Mapping
from functools import partial
from typing import Final

from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.base import ExecResult, SandboxDelta
from swe_rollout.sandbox.session import walk
from swe_rollout.sandbox.session.client import SupervisorClient
from swe_rollout.sandbox.session.frames import RequestKind
from swe_rollout.sandbox.session.walk import Walk

_WALK_S: Final = 180.0
"""For a walk over all files; the supervisor ends it after two minutes."""
_TRIES: Final = 3
"""Commands can kill the process that walks."""
_KILLED: Final = 128
_SMALL_BYTES: Final = 64 << 10
_RECORDED: Final = ExecResult(exit_code=0, stdout=b"", stderr=b"")


class SessionSnapshots:
    """Deltas of a session's files. Requests that change files wait while they are recorded."""

    def __init__(self, client: SupervisorClient, trees: Mapping[str, str] | None) -> None:
        """Record nothing before `track`."""
        self._client = client
        self._trees = trees
        self._lock = asyncio.Lock()
        self._number = -1
        """Of the delta that the next one follows; -1: nothing was recorded."""
        self._is_outdated = False
        """Whether the moment of `_number` is still to be recorded."""
        self._recording: asyncio.Future[ExecResult] | None = None

    def track(self) -> None:
        """Let what is there be recorded before the first change, unless that was done before.

        Not at once: a delta may be applied first, and takes its place.
        """
        if self._number < 0:
            self._number, self._is_outdated = 0, True

    async def record(self) -> None:
        """Record what is there now, so that nobody waits for it later."""
        self.track()
        await self.ready()

    def follow(self, number: int) -> None:
        """Take it that the supervisor has recorded this moment, for another process."""
        recorded = asyncio.get_running_loop().create_future()
        recorded.set_result(_RECORDED)
        self._number, self._is_outdated, self._recording = number, False, recorded

    async def ready(self) -> None:
        """Return when files may change: what was there before is recorded, or can't be."""
        if self._is_outdated:
            self._record()
        if self._recording is not None and not self._recording.done():
            await asyncio.wait({self._recording})

    async def changes(self, since: int | None) -> SandboxDelta:
        """Return the delta that follows number `since`; by default, that returned last."""
        async with self._lock:
            await self.ready()
            if since is None:
                since = self._tracked()
            if self._recording is not None and not (recorded := self._recording.result()).ok:
                return walk.delta_of(recorded, since + 1)
            for _ in range(_TRIES):
                result = await self._request(RequestKind.CHANGES, since + 1)
                if result.timed_out or result.exit_code < _KILLED:
                    break
            if result.exit_code == errno.ESTALE:
                raise SandboxError(
                    f"there is no delta after number {since}",
                    why="the sandbox keeps the last two moments alone",
                    fix="ask for what follows the delta that was returned last",
                )
            make = partial(walk.delta_of, result, since + 1)
            # A small one is compressed before a thread would begin.
            is_small = len(result.stdout) <= _SMALL_BYTES
            delta = make() if is_small else await asyncio.to_thread(make)
            self._number = delta.number
            return delta

    async def apply(self, delta: SandboxDelta) -> None:
        """Bring the files to the state of a delta; the next one is relative to it."""
        async with self._lock:
            if self._recording is not None:
                await asyncio.wait({self._recording})
            records = await asyncio.to_thread(walk.records_of, delta)
            self._number, self._is_outdated = delta.number, True
            walk.check_restored(await self._request(RequestKind.RESTORE, 0, records))

    def _record(self) -> None:
        self._is_outdated = False
        self._recording = asyncio.create_task(self._request(RequestKind.TRACK, self._number))
        # Its error, of a lost sandbox, is that of the next request as well.
        self._recording.add_done_callback(lambda task: task.cancelled() or task.exception())

    def _tracked(self) -> int:
        if self._recording is None:
            raise SandboxError(
                "the sandbox has no snapshots",
                why="what it held when it was handed out was not recorded",
                fix="start it with SandboxRequest(snapshots=True)",
                retryable=False,
            )
        return self._number

    async def _request(self, kind: RequestKind, number: int, records: bytes = b"") -> ExecResult:
        request = Walk(kind, self._trees, number, records)
        return await self._client.request_within(request, timeout_s=_WALK_S)
