"""Replica: one server of the pool, its state, and the calls that depend on it.

A replica is probed periodically, and at once when it loses a call. Several probes in a row must
fail before it counts as down, which ends its calls in flight as lost. `pool.pool` decides which
replica an episode calls.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import structlog

from swe_rollout.engine.base import GenerateRequest
from swe_rollout.engine.errors import CallLoss, EngineLostError, stopped_clock
from swe_rollout.engine.pool.admission import Admission
from swe_rollout.engine.pool.calls import InFlightCalls
from swe_rollout.engine.pool.probe import HealthProbe, ReplicaState
from swe_rollout.engine.sglang.engine import SglangEngine
from swe_rollout.text.logs import shared_context
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.turn import Generation

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class PoolTiming:
    """How often servers are probed, and how long lost calls wait, in seconds."""

    probe_interval_s: float = 2.0
    """The pause between two probes of a server that responds."""
    down_probe_interval_s: float = 1.0
    """The pause between two probes of a server that does not respond."""
    probe_timeout_s: float = 5.0
    """The time limit of each request of a probe."""
    probe_failures: int = 3
    """Failed probes in a row after which a server counts as down."""
    first_backoff_s: float = 0.1
    """The pause before a lost call is repeated on the same server; it doubles each time."""
    max_backoff_s: float = 10.0


class Replica:
    """One server, or one router with the servers behind it."""

    def __init__(
        self,
        engine: SglangEngine,
        probe: HealthProbe,
        *,
        timing: PoolTiming,
        concurrency: int | None,
        admission: Admission,
        on_change: Callable[[], None],
    ) -> None:
        """`concurrency` bounds the calls in flight; `on_change` is called when `state` changes."""
        self.engine = engine
        self.probe = probe
        self.state = ReplicaState.READY
        self.admission = admission
        self.foreign_calls = 0
        """Running and waiting generations of other clients, as of the last probe."""
        self._timing = timing
        self._slots = None if concurrency is None else asyncio.Semaphore(concurrency)
        self._waiting = InFlightCalls(loss=CallLoss.UNREACHABLE)
        self._on_change = on_change
        self._failed_probes = 0
        self._last_ready = time.monotonic()
        self._checking: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        return self.engine.url

    @property
    def paused_s(self) -> float:
        """Seconds since the server was paused; 0 while it is not paused."""
        return time.monotonic() - self._last_ready if self.state is ReplicaState.PAUSED else 0.0

    async def enter(self, episode: EpisodeId) -> None:
        """Wait for a place in the cache; raises EngineLostError if the server goes down."""
        async with self._waiting.track(None, timeout_s=math.inf):
            await self.admission.enter(episode)

    async def generate(self, request: GenerateRequest) -> Generation:
        """Sample one turn as soon as there is room for its context and a free slot."""
        context = self.admission.begin(request)
        try:
            if not context.ready.is_set():
                with stopped_clock(request.clock):
                    async with self._waiting.track(None, timeout_s=math.inf):
                        await context.ready.wait()
            async with self._slot(request):
                generation = await self.engine.generate(request)
            self.admission.learn(context, generation)
            return generation
        finally:
            self.admission.end(context)

    def add_slots(self, count: int) -> None:
        """Allow this many more calls in flight, after a router named more servers."""
        for _ in range(count):
            if self._slots is not None:
                self._slots.release()

    async def check(self) -> None:
        """Probe the server and update `state`; concurrent callers share one probe."""
        if self._checking is None or self._checking.done():
            self._checking = asyncio.create_task(self._check(), context=shared_context())
        await asyncio.shield(self._checking)

    async def monitor(self, *, loads: bool) -> None:
        """Probe forever; with `loads` also update `foreign_calls`."""
        while True:
            await self.check()
            if loads and self.state is ReplicaState.READY:
                await self._update_load()
            responds = self.state is not ReplicaState.DOWN and not self._failed_probes
            timing = self._timing
            interval_s = timing.probe_interval_s if responds else timing.down_probe_interval_s
            await asyncio.sleep(interval_s)

    async def aclose(self) -> None:
        """Cancel the current probe and close the connections."""
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.wait((self._checking,))
        await self.probe.aclose()
        await self.engine.aclose()

    async def _check(self) -> None:
        try:
            result = await self.probe.check()
        except EngineLostError as lost:
            self._failed_probes += 1
            if self._failed_probes >= self._timing.probe_failures:
                self._set_state(ReplicaState.DOWN, str(lost))
            return
        self._failed_probes = 0
        self._set_state(result)
        if result is ReplicaState.READY:
            self._last_ready = time.monotonic()

    async def _update_load(self) -> None:
        own = len(self.engine.calls)
        try:
            calls = await self.probe.count_calls()
        except EngineLostError:
            return  # The next probe decides whether it is down.
        self.foreign_calls = 0 if calls is None else max(0, calls - own)

    def _set_state(self, state: ReplicaState, why: str = "") -> None:
        if state is self.state:
            return
        log.info("engine_state_changed", url=self.url, state=state.value, why=why)
        self.state = state
        for calls in (self._waiting, self.engine.calls):
            match state:
                case ReplicaState.READY:
                    calls.resume()
                case ReplicaState.PAUSED:
                    calls.pause(since_s=time.monotonic() - self._last_ready)
                case ReplicaState.DOWN:
                    calls.resume()
                    calls.fail(why)
        if state is ReplicaState.DOWN:
            self.engine.discard_info()
            self.admission.clear()
        self._on_change()

    @asynccontextmanager
    async def _slot(self, request: GenerateRequest) -> AsyncIterator[None]:
        if self._slots is None:
            yield
            return
        async with self._waiting.track(request.clock, timeout_s=math.inf):
            await self._slots.acquire()
        try:
            yield
        finally:
            self._slots.release()
