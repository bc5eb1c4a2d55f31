"""InFlightCalls: the generations in flight at one server, and the clocks that stop with it.

A paused server samples nothing, so neither the episode's clock nor the call's own timeout runs. A
server that is down loses its calls at once; the time lost is refunded to the episode. Used by
`sglang.engine`; `pool.replica` decides when a server is paused or down.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

from swe_rollout.engine.errors import CallLoss, EngineLostError, UnavailableError
from swe_rollout.types.deadline import Deadline


class InFlightCalls:
    """The calls in flight at one server."""

    def __init__(self, *, loss: CallLoss = CallLoss.UNRESPONSIVE) -> None:
        """Create an empty set; `loss` says how its calls are lost when the server goes down."""
        self._loss = loss
        self._calls: set[_InFlightCall] = set()
        self._paused = False

    def __len__(self) -> int:
        return len(self._calls)

    @asynccontextmanager
    async def track(self, clock: Deadline | None, *, timeout_s: float) -> AsyncIterator[None]:
        """Bound the block by the timeout of one call; raises EngineLostError when it is lost.

        `clock` is the episode's; the time of a lost or refused call is refunded to it.
        """
        call = _InFlightCall(clock, timeout_s)
        if self._paused:
            call.stop_clocks()
        self._calls.add(call)
        try:
            async with call.scope, call.limit.enforced() as limit:
                yield
        except TimeoutError as error:
            if not (call.scope.expired() or limit.expired()):
                raise
            call.refund()
            raise self._lost(call, timeout_s) from error
        except (EngineLostError, UnavailableError):
            call.refund()
            raise
        finally:
            self._calls.discard(call)
            call.start_clocks()

    def pause(self, *, since_s: float = 0.0) -> None:
        """Stop the clocks: the server has been paused for about `since_s` seconds."""
        self._paused = True
        for call in self._calls:
            call.stop_clocks(since_s)

    def resume(self) -> None:
        """Restart the clocks: the server samples again."""
        self._paused = False
        for call in self._calls:
            call.start_clocks()

    def fail(self, why: str) -> None:
        """End every call as lost, because the server is down."""
        for call in self._calls:
            call.fail(why)

    def _lost(self, call: _InFlightCall, timeout_s: float) -> EngineLostError:
        if call.scope.expired():
            what = "the engine stopped responding during a call"
            return EngineLostError(what, why=call.why, loss=self._loss)
        return EngineLostError(
            f"no response within {timeout_s:g} s",
            fix="raise spec.policy.sglang.timeoutSeconds, or lower spec.limits.maxNewTokens",
            loss=CallLoss.TIMED_OUT,
        )


class _InFlightCall:
    """One generation and its clocks."""

    __slots__ = (
        "_clock",
        "_stack",
        "_started",
        "_stopped_at",
        "_stopped_s",
        "limit",
        "scope",
        "why",
    )

    def __init__(self, clock: Deadline | None, timeout_s: float) -> None:
        self.limit = Deadline(timeout_s)
        self.scope = asyncio.timeout(None)
        self.why = ""
        self._clock = clock
        self._started = time.monotonic()
        self._stack: ExitStack | None = None
        self._stopped_at = 0.0
        self._stopped_s = 0.0

    def stop_clocks(self, since_s: float = 0.0) -> None:
        if self._stack is not None:
            return
        self._stopped_at = max(self._started, time.monotonic() - since_s)
        self._stack = ExitStack()
        for clock in self._clocks():
            clock.extend(time.monotonic() - self._stopped_at)
            self._stack.enter_context(clock.paused())

    def start_clocks(self) -> None:
        if self._stack is not None:
            self._stack.close()
            self._stack = None
            self._stopped_s += time.monotonic() - self._stopped_at

    def refund(self) -> None:
        """Give the episode back all the time of a call without a result."""
        self.start_clocks()
        if self._clock is not None:
            self._clock.extend(time.monotonic() - self._started - self._stopped_s)

    def fail(self, why: str) -> None:
        self.why = why
        if not self.scope.expired():
            self.scope.reschedule(asyncio.get_running_loop().time())

    def _clocks(self) -> tuple[Deadline, ...]:
        return (self.limit,) if self._clock is None else (self.limit, self._clock)
