"""OutageBudget: how long one call may wait for its engines, and how often it may be lost.

Used by `pool.pool`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_exponential

from swe_rollout.engine.errors import CallLoss, EngineLostError, stopped_clock
from swe_rollout.engine.pool.replica import PoolTiming
from swe_rollout.errors import EngineError
from swe_rollout.types.deadline import Deadline

_CRASHES = (CallLoss.DROPPED, CallLoss.UNRESPONSIVE)
MAX_CRASHES = 5
"""Engines that one call may be lost with: a call that kills every engine must end."""
MAX_LOSSES = 30
"""Times one call may be lost in any way: some minutes of a router that finds no engine."""


class RepeatCallError(Exception):
    """A call was lost and is to be repeated; never leaves the pool."""


class OutageBudget:
    """What one call may still wait, with its clock stopped, and how often it was lost."""

    def __init__(self, seconds: float, *, clock: Deadline | None, timing: PoolTiming) -> None:
        self._seconds = seconds
        self._left_s = seconds
        self._clock = clock
        self._backoff = wait_exponential(
            multiplier=timing.first_backoff_s, max=timing.max_backoff_s
        )
        self._backs_off = False
        self._losses = 0
        self._crashes = 0

    def record_loss(self, lost: EngineError, *, at_live_replica: bool) -> None:
        """Count a lost call; raises EngineLostError when too many engines died during it.

        A call lost at a replica that still responds backs off before it is repeated; one lost
        with its replica is repeated at once elsewhere, or waits for a replica.
        """
        self._backs_off = at_live_replica
        self._losses += 1
        self._crashes += isinstance(lost, EngineLostError) and lost.loss in _CRASHES
        if self._crashes >= MAX_CRASHES or self._losses >= MAX_LOSSES:
            raise EngineLostError(
                f"one call was lost {self._losses} times",
                why=str(lost),
                fix="look at the engine's log: the call itself may be what kills it",
                loss=CallLoss.DROPPED,
            ) from lost

    def retrying(self) -> AsyncRetrying:
        """Repeat an attempt after its first RepeatCallError, until it raises none."""
        return AsyncRetrying(retry=retry_if_exception_type(RepeatCallError), before=self._back_off)

    @asynccontextmanager
    async def waiting_for(self, what: str) -> AsyncIterator[None]:
        """Stop the clock inside; raises EngineLostError when the budget is spent."""
        started = time.monotonic()
        try:
            with stopped_clock(self._clock):
                async with asyncio.timeout(self._left_s) as timeout:
                    yield
        except TimeoutError as error:
            if not timeout.expired():
                raise
            raise EngineLostError(
                f"waited {self._seconds:g} s for {what}",
                fix="start an engine, or raise spec.policy.sglang.outageSeconds",
                loss=CallLoss.UNREACHABLE,
            ) from error
        finally:
            self._left_s = max(0.0, self._left_s - (time.monotonic() - started))

    async def _back_off(self, state: RetryCallState) -> None:
        if self._backs_off:
            async with self.waiting_for("a server that responds to its calls"):
                await asyncio.sleep(self._backoff(state))
