"""EnginePool: the engines of a job. Each episode stays on one of them, and survives its loss.

Several servers are called directly, each episode on its own; a router is one replica, which learns
from a header which episode a call belongs to. A call that is lost with its engine is repeated with
the same ids, at another server or once one is back, with the episode's clock stopped meanwhile.

The state of one server is in `pool.replica`, the assignment of episodes in `pool.affinity`, and the
check of what is sent in `pool.prefix_guard`. An `OutageBudget` is the patience of one call.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import astuple, dataclass

import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_exponential

from swe_rollout.engine.base import CacheGate, EngineInfo, GenerateRequest, TokenEngine
from swe_rollout.engine.errors import CallLoss, EngineLostError, UnavailableError, stopped_clock
from swe_rollout.engine.pool.admission import Admission, Waiting
from swe_rollout.engine.pool.affinity import Affinity
from swe_rollout.engine.pool.footprint import Sizes
from swe_rollout.engine.pool.prefix_guard import PrefixGuard
from swe_rollout.engine.pool.probe import HealthProbe, ReplicaState
from swe_rollout.engine.pool.replica import PoolTiming, Replica
from swe_rollout.engine.sglang.engine import SglangEngine
from swe_rollout.errors import EngineError, UnreachableError
from swe_rollout.spec.policy import SglangPolicy
from swe_rollout.text.logs import shared_context
from swe_rollout.types.deadline import Deadline
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.turn import Generation

log = structlog.get_logger()
_CRASHES = (CallLoss.DROPPED, CallLoss.UNRESPONSIVE)
MAX_CRASHES = 5
"""The most engines that one call may lose: a call that kills every engine must end."""
MAX_LOSSES = 30
"""The most losses of any kind per call: some minutes of a router that finds no engine."""


@dataclass(frozen=True, slots=True)
class CacheShare:
    """What of the servers' caches a pool may fill."""

    workers: int = 1
    """The number of processes that divide each cache."""
    context_tokens: int | None = None
    """The largest context that the job allows."""
    on_change: Callable[[Waiting], None] = lambda _: None
    """Called when the number of those that wait has changed."""

    def of(self, reported: int | None, named: int | None) -> int | None:
        """Return the share in a cache; None if nobody has to wait. What the policy names counts."""
        tokens = reported if named is None else named
        return tokens // self.workers if tokens else None


class EnginePool(TokenEngine, CacheGate):
    """Samples from the engines of a policy. Safe for concurrent calls."""

    def __init__(
        self,
        policy: SglangPolicy,
        *,
        vocab_size: int,
        timing: PoolTiming | None = None,
        first_backoff_s: float = 0.5,
        share: CacheShare | None = None,
    ) -> None:
        """Bound ids both ways by `vocab_size`; back off from full engines for `first_backoff_s`.

        `share` is what of the caches this pool may fill, by default all.

        Raises PrerequisiteError when the variable with the engines' key is not set.
        """
        self._policy = policy
        self._share = share or CacheShare()
        self._sizes = Sizes(self._share.context_tokens)
        self._timing = timing or PoolTiming()
        self._prefix_guard = PrefixGuard()
        self._affinity = Affinity()
        self._changed = asyncio.Event()
        self._monitors: list[asyncio.Task[None]] = []
        addresses = policy.workers if policy.url is None else (policy.url,)
        self.replicas = {
            url: self._replica(
                SglangEngine(
                    policy, vocab_size=vocab_size, url=url, first_backoff_s=first_backoff_s
                )
            )
            for url in dict.fromkeys(addresses)
        }
        """The pool's servers, by address."""

    @property
    def paused_s(self) -> float:
        """Seconds for which all servers that respond have been paused; 0 while one samples."""
        replicas = [each for each in self.replicas.values() if each.state is not ReplicaState.DOWN]
        return min((each.paused_s for each in replicas), default=0.0)

    @property
    def waiting(self) -> Waiting:
        """Who waits for a place in the caches of all servers."""
        found = [each.admission.waiting for each in self.replicas.values()]
        return Waiting(*map(sum, zip(*map(astuple, found), strict=True)))

    @property
    def capacity(self) -> int | None:
        places = [each.admission.capacity for each in self.replicas.values()]
        return None if None in places else sum(filter(None, places))

    async def enter(self, episode: EpisodeId) -> None:
        self._start_monitors()
        has_place = False
        # While no server can be reached, the first call waits.
        while not has_place and (replica := self._choose(episode)) is not None:
            try:
                await replica.enter(episode)
                has_place = True
            except EngineLostError as lost:
                log.info("place_lost", episode=str(episode), url=replica.url, why=str(lost))

    async def info(self) -> EngineInfo:
        """Ask all servers; one response is enough, and the smallest context counts."""
        asked = map(self._info_of, self.replicas.values())
        results = await asyncio.gather(*asked, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, UnreachableError):
                raise result
        infos = [result for result in results if isinstance(result, EngineInfo)]
        if not infos:
            raise next(result for result in results if isinstance(result, UnreachableError))
        return _common_info(infos)

    async def generate(self, request: GenerateRequest) -> Generation:
        self._prefix_guard.check(request)
        self._start_monitors()
        budget = OutageBudget(self._policy.outage_seconds, clock=request.clock, timing=self._timing)
        try:
            generation = await self._attempt(request, budget)
        except RepeatCallError:
            # Set up a retry loop only for lost calls: it takes 30 µs.
            generation = await budget.retrying()(self._attempt, request, budget)
        self._prefix_guard.add(request, generation)
        return generation

    def release(self, episode: EpisodeId) -> None:
        self._prefix_guard.release(episode)
        self._affinity.release(episode)
        for replica in self.replicas.values():
            replica.admission.release(episode)

    async def aclose(self) -> None:
        """Stop the monitors, send the remaining aborts, close the connections."""
        for monitor in self._monitors:
            monitor.cancel()
        await asyncio.gather(*self._monitors, return_exceptions=True)
        await asyncio.gather(*(replica.aclose() for replica in self.replicas.values()))

    async def _info_of(self, replica: Replica) -> EngineInfo:
        await self._discover_workers(replica)
        info = await replica.engine.info()
        named = self._policy.cache_tokens
        if named is not None:
            named *= max(1, len(replica.probe.workers))
        replica.admission.resize(self._share.of(replica.engine.cache_tokens, named))
        return info

    def _replica(self, engine: SglangEngine) -> Replica:
        policy = self._policy
        workers = () if policy.url is None else policy.workers
        probe = HealthProbe(
            engine.url,
            api_key_env=policy.api_key_env,
            timeout_s=self._timing.probe_timeout_s,
            workers=workers,
        )
        if workers:
            engine.set_workers(workers)
        # The bound for a router applies to each server behind it.
        bound = policy.concurrency and policy.concurrency * max(1, len(workers))
        return Replica(
            engine,
            probe,
            timing=self._timing,
            concurrency=bound,
            admission=Admission(self._sizes, lambda: self._share.on_change(self.waiting)),
            on_change=self._changed.set,
        )

    def _start_monitors(self) -> None:
        """Monitor the servers from the first call on."""
        if not self._monitors:
            replicas = self.replicas.values()
            self._monitors = [
                asyncio.create_task(self._monitor(each), context=shared_context())
                for each in replicas
            ]

    async def _monitor(self, replica: Replica) -> None:
        await self._discover_workers(replica)
        await replica.monitor(loads=len(self.replicas) > 1)

    async def _discover_workers(self, replica: Replica) -> None:
        """Ask a router for its servers if the policy does not name them."""
        if self._policy.url is None or replica.probe.workers:
            return
        try:
            workers = await replica.probe.list_workers()
        except EngineLostError as lost:
            log.info("workers_unknown", url=replica.url, why=str(lost))
            return
        if workers and not replica.probe.workers:
            replica.probe.set_workers(workers)
            replica.engine.set_workers(workers)
            replica.add_slots((len(workers) - 1) * (self._policy.concurrency or 0))

    async def _attempt(self, request: GenerateRequest, budget: OutageBudget) -> Generation:
        """Call the episode's replica once; raises RepeatCallError when the call was lost."""
        replica = await self._assign(request.episode, budget)
        try:
            return await replica.generate(request)
        except (UnavailableError, EngineLostError) as error:
            async with budget.waiting_for("a probe of the engine"):
                await replica.check()
            is_live = replica.state is not ReplicaState.DOWN
            # A proxy in front of a dead server may respond in its place.
            if is_live and _is_from_live_engine(error):
                raise
            budget.record_loss(error, at_live_replica=is_live)
            raise RepeatCallError from error

    async def _assign(self, episode: EpisodeId, budget: OutageBudget) -> Replica:
        """Return the episode's replica, as soon as one can take it."""
        if (replica := self._choose(episode)) is not None:
            return replica
        async with budget.waiting_for("an engine"):
            while (replica := self._choose(episode)) is None:
                self._changed.clear()
                await self._changed.wait()
        return replica

    def _choose(self, episode: EpisodeId) -> Replica | None:
        url = self._affinity.url_of(episode)
        if url is not None and self.replicas[url].state is not ReplicaState.DOWN:
            return self.replicas[url]
        for state in (ReplicaState.READY, ReplicaState.PAUSED):
            replicas = (each for each in self.replicas.values() if each.state is state)
            if foreign_calls := {each.url: each.foreign_calls for each in replicas}:
                return self.replicas[self._affinity.assign(episode, foreign_calls)]
        return None


class RepeatCallError(Exception):
    """A call was lost and has to be repeated; never leaves the pool."""


class OutageBudget:
    """How long a call may still wait with its clock stopped, and how often it was lost."""

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

        If the replica still responds, the call backs off before it is repeated; if not, it is
        repeated at once elsewhere, or waits for a replica.
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


def _is_from_live_engine(error: EngineError) -> bool:
    match error:
        case EngineLostError(
            loss=CallLoss.UNREACHABLE | CallLoss.UPSTREAM | CallLoss.DROPPED | CallLoss.UNRESPONSIVE
        ):
            return False
        case _:
            return True


def _common_info(infos: Sequence[EngineInfo]) -> EngineInfo:
    """Return the information that holds for all servers."""
    first = infos[0]
    if any((info.model, info.tokenizer) != (first.model, first.tokenizer) for info in infos):
        log.warning("engines_differ", models=sorted({info.model for info in infos}))
    contexts = [info.context_tokens for info in infos if info.context_tokens is not None]
    return EngineInfo(
        model=first.model,
        context_tokens=min(contexts, default=None),
        vocab_size=first.vocab_size,
        weight_version=first.weight_version,
        tokenizer=first.tokenizer,
    )
