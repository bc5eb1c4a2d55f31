"""Metrics for Prometheus: the operator's actions and the jobs' states. No labels by episode."""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Histogram, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from rollout_operator.observed import ObservedJob
from swe_rollout.spec.status import EpisodeCounts, State

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


MOST_JOBS: Final = 500
"""The most jobs with their own series, so that users can't flood Prometheus with jobs."""
_ENDED: Final = (State.COMPLETE, State.FAILED)


class Metrics:
    """Counters of the operator, and gauges of the jobs at the moment of the scrape."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._rounds = Histogram(
            "swe_rollout_round_seconds",
            "Duration of a round of reconciliation.",
            registry=self.registry,
            buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10),
        )
        self._actions = Counter(
            "swe_rollout_actions",
            "What the operator did on the cluster, such as creating workers.",
            ["action"],
            registry=self.registry,
        )
        self._writes = Counter(
            "swe_rollout_status_writes", "Writes of jobs' status.", registry=self.registry
        )

    @contextmanager
    def round(self) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self._rounds.observe(time.perf_counter() - started)

    def action_started(self, action: str) -> None:
        self._actions.labels(action).inc()

    def status_written(self) -> None:
        self._writes.inc()

    def serve(self, port: int, jobs: Callable[[], Collection[ObservedJob]]) -> Callable[[], None]:
        """Serve on `port` until the returned function is called."""
        self.registry.register(_Jobs(jobs))
        server, thread = start_http_server(port, registry=self.registry)

        def stop() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        return stop


class _Jobs(Collector):
    """Computes gauges at each scrape, so that a deleted job leaves none behind."""

    def __init__(self, jobs: Callable[[], Collection[ObservedJob]]) -> None:
        self._jobs = jobs

    def collect(self) -> Iterator[Metric]:
        jobs = self._jobs()
        counted = Tally(job.status.state for job in jobs)
        states = GaugeMetricFamily("swe_rollout_jobs", "RolloutJobs by state.", labels=["state"])
        for state in State:
            states.add_metric([state.value], counted[state])
        yield states
        episodes = GaugeMetricFamily(
            "swe_rollout_episodes",
            "Counts of a job's status.",
            # Prometheus uses the label `job` itself, for the scraped target.
            labels=["namespace", "rolloutjob", "kind"],
        )
        for job in _shown(jobs):
            for kind in EpisodeCounts.model_fields:
                value = getattr(job.status.episodes, kind)
                episodes.add_metric([job.metadata.namespace, job.metadata.name, kind], value)
        yield episodes


def _shown(jobs: Collection[ObservedJob]) -> Collection[ObservedJob]:
    """Return the jobs that get their own series, preferring those that may still change."""
    if len(jobs) <= MOST_JOBS:
        return jobs
    return sorted(jobs, key=lambda job: job.status.state in _ENDED)[:MOST_JOBS]
