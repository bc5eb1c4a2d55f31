"""Deadline: a time limit whose clock can be paused, and pauses while this process is stopped."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Final

BEAT_S: Final = 5.0
"""Seconds between two checks whether this process is running."""
STOPPED_S: Final = 5.0
"""A check this late means that the process was stopped: SIGSTOP, a freezer, a suspended machine."""

CLOCK: ContextVar[Deadline | None] = ContextVar("episode_clock", default=None)
"""The clock of the episode whose agent runs in this task."""


class Deadline:
    """A monotonic deadline whose clock pauses while a required service is unavailable."""

    def __init__(self, seconds: float) -> None:
        self._skipped = 0.0
        """Seconds that passed in an earlier process, added by `catch_up`."""
        self._began = time.monotonic()
        self._end = self._began + seconds
        self._pauses = 0
        self._paused_at = 0.0
        self._timeouts: dict[asyncio.Timeout, float] = {}
        self._beat: asyncio.TimerHandle | None = None

    def reset(self, seconds: float) -> None:
        """Restart the deadline, with this much time from now."""
        self._began = self.now()
        self._end = self._now() + seconds
        if not self._pauses:
            self._reschedule(self.remaining_s)

    @property
    def remaining_s(self) -> float:
        """Seconds remaining; never negative."""
        return max(0.0, self._end - self._now())

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start, including those during which the clock was paused."""
        return self.now() - self._began

    def now(self) -> float:
        """Return a monotonic time for measurements, including the time that `catch_up` added."""
        return time.monotonic() + self._skipped

    def catch_up(self, *, elapsed_s: float, remaining_s: float) -> None:
        """Advance to where an earlier process was; do nothing if the clock is already past that."""
        skipped = elapsed_s - self.elapsed_s
        if skipped > 0:
            self._skipped += skipped
            self._end = self.now() + remaining_s
            if not self._pauses:
                self._reschedule(self.remaining_s)

    @property
    def expired(self) -> bool:
        """Whether the time is up."""
        return self._now() >= self._end

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause the clock inside the block: the wait is not the episode's fault. May be nested."""
        if not self._pauses:
            self._paused_at = self.now()
            self._reschedule(None)
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses:
                self.extend(self.now() - self._paused_at)

    def extend(self, seconds: float) -> None:
        """Add time that was lost through no fault of the episode."""
        self._end += seconds
        if not self._pauses:
            self._reschedule(self.remaining_s)

    @asynccontextmanager
    async def enforced(self, *, grace_s: float = 0.0) -> AsyncIterator[asyncio.Timeout]:
        """Cancel the block `grace_s` after the time is up, as `asyncio.timeout` does.

        Raises TimeoutError; `expired()` of the yielded Timeout says whether this one fired. Blocks
        may nest.
        """
        wait_s = None if self._pauses else self.remaining_s + grace_s
        async with asyncio.timeout(wait_s) as timeout:
            self._timeouts[timeout] = grace_s
            if self._beat is None:
                self._look_again()
            try:
                yield timeout
            finally:
                del self._timeouts[timeout]
                if not self._timeouts and self._beat is not None:
                    self._beat.cancel()
                    self._beat = None

    def _look_again(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + BEAT_S
        self._beat = loop.call_at(due, self._look, due)

    def _look(self, due: float) -> None:
        """Add back the time for which this process was stopped.

        Timers that became due meanwhile run in order, so this one runs before the limit itself.
        """
        late_s = asyncio.get_running_loop().time() - due
        if late_s > STOPPED_S and not self._pauses:
            self.extend(late_s)
        self._look_again()

    def _now(self) -> float:
        return self._paused_at if self._pauses else self.now()

    def _reschedule(self, remaining_s: float | None) -> None:
        for timeout, grace_s in self._timeouts.items():
            if not timeout.expired():
                loop = asyncio.get_running_loop()
                when = None if remaining_s is None else loop.time() + remaining_s + grace_s
                timeout.reschedule(when)
