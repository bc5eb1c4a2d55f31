"""Write the reference page of metrics: from the catalog of workers', and from the operator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from rollout_dev.codegen.reference import table
from rollout_operator.metrics import MOST_JOBS, Metrics
from rollout_operator.observed import ObservedJob
from rollout_operator.resources import METRICS_PORT
from swe_rollout.spec.status import EpisodeCounts, State
from swe_rollout.telemetry.catalog import LABEL_VALUES, METRICS, Kind, Metric

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric as Family

_KINDS: Final = {
    "total": "tasks times samples",
    "committed": "in the store",
    "running": "running now",
    "resolved": "committed, and the task is solved",
    "unresolved": "committed, and the task is not solved",
    "tampered": "of the unresolved: tests passed only because the patch tampers with them",
    "masked": "committed with a failure: something broke, nothing was earned",
}
QUESTIONS: Final = {
    "which jobs fail?": 'swe_rollout_jobs{state="Failed"}',
    "how fast are episodes committed?": (
        "sum by (rolloutjob, outcome) (rate(swe_rollout_episodes_finished_total[5m]))"
    ),
    "what is the mean reward?": (
        '(sum(rate(swe_rollout_reward_points_total{sign="positive"}[15m]))'
        ' - sum(rate(swe_rollout_reward_points_total{sign="negative"}[15m])))'
        " / sum(rate(swe_rollout_reward_count[15m]))"
    ),
    "who breaks attempts?": (
        "sum by (owner, type) (increase(swe_rollout_attempts_failed_total[1h]))"
    ),
    "how much of the time is the engine's, against the tools'?": (
        "sum(rate(swe_rollout_engine_call_seconds_sum[5m]))"
        " / (sum(rate(swe_rollout_engine_call_seconds_sum[5m]))"
        " + sum(rate(swe_rollout_tool_seconds_sum[5m])))"
    ),
    "does the prefix cache work?": (
        "sum(rate(swe_rollout_prefix_cache_hit_tokens_total[5m]))"
        " / sum(rate(swe_rollout_prompt_tokens_total[5m]))"
    ),
    "is a worker short of CPU?": (
        "histogram_quantile(0.99,"
        " sum by (le, pod) (rate(swe_rollout_event_loop_lag_seconds_bucket[5m])))"
    ),
    "is the operator slow?": (
        "histogram_quantile(0.95, rate(swe_rollout_round_seconds_bucket[5m]))"
    ),
}
_INTRO: Final = f"""\
<!-- Made by scripts/generate; change swe_rollout/telemetry/catalog.py, or \
scripts/rollout_dev/codegen/metrics_reference.py, instead. -->
# Metrics

How to collect and show them: [observe](../how-to/observe.md). Workers, and `run` with
`--metrics HOST:PORT`, serve the metrics of rollouts, the operator those of jobs; both at
`/metrics`, for Prometheus.

## Rollouts

Worker pods serve these on port {METRICS_PORT}, named `metrics`. No label names a job, a task or an
episode: the scrape adds `namespace`, `pod` and `rolloutjob`. Tools and types of errors are named by
code outside of swe-rollout, so of each at most {LABEL_VALUES} plain names are told apart, and all
others are `other`.
"""
_PROCESS: Final = """\
The `process_*` metrics (CPU seconds, memory, open files) are those of every Prometheus client.

`swe_rollout_wait_seconds_total` for the engine is time for which the episodes' clocks stood still:
all servers were down or paused, or the worker held its episodes back. It is no part of
`swe_rollout_engine_call_seconds`.

## Jobs

The operator serves these on port 8081 (`--metrics-port`), also named `metrics`.
"""
_GAUGES: Final = f"""\
States are {", ".join(f"`{state.value}`" for state in State)}. Gauges are computed when they are
scraped, so a deleted job leaves none behind; beyond {MOST_JOBS} jobs, those that have ended have
none. `kind` is a field of the job's `status.episodes`:
"""


def metrics_page() -> str:
    """Return the page."""
    lines = [_INTRO]
    header = ("metric", "type", "labels", "meaning")
    lines += table(header, map(_row, METRICS))
    lines.append("Buckets of histograms, in seconds where the name says so:\n")
    lines += table(("histogram", "upper bounds"), _buckets())
    lines.append(_PROCESS)
    lines += table(header, map(_operator_row, operator_families()))
    lines.append(_GAUGES)
    lines += table(("`kind`", "meaning"), _kinds())
    lines.append("## Questions and queries\n")
    lines += table(
        ("question", "query"), ((asked, f"`{query}`") for asked, query in QUESTIONS.items())
    )
    return "\n".join(lines).rstrip() + "\n"


def operator_families() -> tuple[Family, ...]:
    """Return what the operator serves, with a sample of each metric that has labels."""
    metrics = Metrics()
    metrics.action_started("create-workers")
    metadata = {
        "name": "demo",
        "namespace": "team",
        "uid": "0",
        "generation": 1,
        "resourceVersion": "1",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    job = ObservedJob.of(msgspec.to_builtins({"metadata": metadata, "spec": {}}))
    metrics.serve(0, lambda: [job])()
    return tuple(metrics.registry.collect())


def _row(metric: Metric) -> tuple[str, ...]:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return (f"`{metric.name}`", metric.kind.value, labels, metric.help.rstrip("."))


def _operator_row(family: Family) -> tuple[str, ...]:
    suffix = "_total" if family.type == "counter" else ""
    names = sorted({name for sample in family.samples for name in sample.labels} - {"le"})
    labels = ", ".join(f"`{name}`" for name in names)
    meaning = family.documentation.rstrip(".")
    return (f"`{family.name}{suffix}`", family.type, labels, meaning)


def _buckets() -> Iterator[tuple[str, str]]:
    for metric in METRICS:
        if metric.kind is Kind.HISTOGRAM:
            yield f"`{metric.name}`", ", ".join(f"{bound:g}" for bound in metric.buckets)


def _kinds() -> Iterator[tuple[str, str]]:
    for kind in EpisodeCounts.model_fields:
        yield f"`{kind}`", _KINDS[kind]
