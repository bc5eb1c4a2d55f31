"""Metrics: counts of events, for Prometheus. `catalog` lists them."""

from __future__ import annotations

import re
from time import perf_counter
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from swe_rollout.errors import SweRolloutError
from swe_rollout.events import EngineCall, Execution, Phase, SandboxStart, Service
from swe_rollout.observer import Observer
from swe_rollout.telemetry import catalog
from swe_rollout.telemetry.catalog import Metric
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.turn import CallStatus, Turn

OTHER: Final = "other"
_PLAIN: Final = re.compile(r"[A-Za-z_][\w.:-]{0,63}", re.ASCII)


class BoundedLabel:
    """Limits a label with values from outside this project to few and plain ones."""

    def __init__(self, limit: int = catalog.LABEL_VALUES) -> None:
        self._limit = limit
        self._seen: set[str] = set()

    def __call__(self, value: str) -> str:
        """Return the value, or `other`."""
        if value in self._seen:
            return value
        if len(self._seen) >= self._limit or not _PLAIN.fullmatch(value):
            return OTHER
        self._seen.add(value)
        return value


class RolloutMetrics(Observer):
    """The metrics of this process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._planned = self._gauge(catalog.PLANNED)
        self._queued = self._gauge(catalog.QUEUED)
        self._running = self._gauge(catalog.RUNNING)
        self._finished = self._counter(catalog.FINISHED)
        self._reward = self._histogram(catalog.REWARD)
        self._reward_sum = self._counter(catalog.REWARD_SUM)
        self._attempts = self._counter(catalog.ATTEMPTS)
        self._attempts_failed = self._counter(catalog.ATTEMPTS_FAILED)
        self._phase = self._histogram(catalog.PHASE)
        self._turns = self._counter(catalog.TURNS)
        self._engine = self._histogram(catalog.ENGINE)
        self._engine_errors = self._counter(catalog.ENGINE_ERRORS)
        self._prompt = self._counter(catalog.PROMPT)
        self._cached = self._counter(catalog.CACHED)
        self._sampled = self._counter(catalog.SAMPLED)
        self._calls = self._counter(catalog.CALLS)
        self._tool = self._histogram(catalog.TOOL)
        self._exec = self._histogram(catalog.EXEC)
        self._start = self._histogram(catalog.START)
        self._start_errors = self._counter(catalog.START_ERRORS)
        self._store_errors = self._counter(catalog.STORE_ERRORS)
        self._wait = self._counter(catalog.WAIT)
        self._cache_awaited = self._gauge(catalog.CACHE_AWAITED)
        self._lag = self._histogram(catalog.LAG)
        self._tools = BoundedLabel()
        self._errors = BoundedLabel()
        self._left = 0
        """Number of episodes not committed yet."""
        self._entered: dict[EpisodeId, tuple[Phase, float]] = {}
        self._queued.set_function(lambda: max(0, self._left - len(self._entered)))
        self._begin_at_zero()

    def planned(self, episodes: int, committed: int) -> None:
        self._planned.set(episodes)
        self._left = episodes - committed

    def replaced(self, failed: EpisodeId, by: EpisodeId) -> None:  # noqa: ARG002 - the protocol's
        self._planned.inc()
        self._left += 1

    def attempt_began(self, episode: EpisodeId, number: int) -> None:  # noqa: ARG002
        self._attempts.inc()

    def phase(self, episode: EpisodeId, phase: Phase) -> None:
        self._leave(episode)
        self._entered[episode] = phase, perf_counter()
        self._running.labels(phase.value).inc()

    def attempt_ended(self, episode: EpisodeId, trajectory: Trajectory | None) -> None:
        self._leave(episode)
        if trajectory is not None and (failure := trajectory.failure) is not None:
            kind = self._errors(failure.type)
            self._attempts_failed.labels(failure.boundary.value, kind).inc()

    def turn(self, episode: EpisodeId, turn: Turn) -> None:  # noqa: ARG002 - the protocol's
        self._turns.inc()
        for call in turn.tool_calls:
            self._calls.labels(call.status.value).inc()
        for call, seen in zip(turn.tool_calls, turn.observations, strict=False):
            # The policy made up the name of any other call.
            if call.status is CallStatus.OK:
                self._tool.labels(self._tools(call.name)).observe(seen.duration_s)

    def done(self, trajectory: Trajectory) -> None:
        self._leave(trajectory.episode)
        self._left -= 1
        self._finished.labels(_outcome(trajectory)).inc()
        if trajectory.reward is not None:
            value = trajectory.reward.value
            self._reward.observe(value)
            self._reward_sum.labels("negative" if value < 0 else "positive").inc(abs(value))

    def engine_called(self, call: EngineCall) -> None:
        if call.waited_s:
            self.waited(Service.ENGINE, call.waited_s)
        if call.span.error:
            self._engine_errors.labels(self._errors(call.span.error)).inc()
            return
        self._engine.observe(call.span.seconds - call.waited_s)
        self._prompt.inc(call.prompt_tokens)
        self._cached.inc(call.cached_tokens)
        self._sampled.inc(call.sampled_tokens)

    def sandbox_started(self, start: SandboxStart) -> None:
        if start.span.error:
            self._start_errors.labels(self._errors(start.span.error)).inc()
        else:
            how = "warm" if start.is_warm else "cold"
            self._start.labels(start.role, how).observe(start.span.seconds)

    def executed(self, execution: Execution) -> None:
        self._exec.labels(execution.role).observe(execution.span.seconds)

    def waited(self, service: Service, seconds: float) -> None:
        self._wait.labels(service.value).inc(seconds)

    def cache_awaited(self, starting: int, turns: int, held_tokens: int, cache_tokens: int) -> None:
        del held_tokens, cache_tokens
        self._cache_awaited.labels("start").set(starting)
        self._cache_awaited.labels("turn").set(turns)

    def store_failed(self, error: SweRolloutError) -> None:
        self._store_errors.labels(self._errors(type(error).__name__)).inc()

    def loop_lagged(self, seconds: float) -> None:
        """Count how late the event loop was."""
        self._lag.observe(seconds)

    def _leave(self, episode: EpisodeId) -> None:
        if (entered := self._entered.pop(episode, None)) is not None:
            phase, since = entered
            self._running.labels(phase.value).dec()
            self._phase.labels(phase.value).observe(perf_counter() - since)

    def _begin_at_zero(self) -> None:
        """Create the series with known labels, so that a rate sees their first increment."""
        for phase in Phase:
            self._running.labels(phase.value)
        for outcome in ("resolved", "unresolved", "tampered", "ungraded", "masked"):
            self._finished.labels(outcome)
        for sign in ("positive", "negative"):
            self._reward_sum.labels(sign)
        for service in Service:
            self._wait.labels(service.value)
        self.cache_awaited(0, 0, 0, 0)

    def _counter(self, metric: Metric) -> Counter:
        name = metric.name.removesuffix("_total")
        return Counter(name, metric.help, metric.labels, registry=self.registry)

    def _gauge(self, metric: Metric) -> Gauge:
        return Gauge(metric.name, metric.help, metric.labels, registry=self.registry)

    def _histogram(self, metric: Metric) -> Histogram:
        return Histogram(
            metric.name,
            metric.help,
            metric.labels,
            registry=self.registry,
            buckets=metric.buckets,
        )


def _outcome(trajectory: Trajectory) -> str:
    outcome = trajectory.outcome
    if outcome.masked:
        return "masked"
    if trajectory.verdict is None:
        return "ungraded"
    if outcome.tampered:
        return "tampered"
    return "resolved" if outcome.resolved else "unresolved"
