"""The generated parts of the page of metrics: from the workers' catalog and from the operator."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec
from prometheus_client.metrics_core import Metric as Family

from rollout_dev.codegen.pages import table
from rollout_operator.metrics import Metrics
from rollout_operator.observed import ObservedJob
from swe_rollout.telemetry.catalog import METRICS, Kind, Metric


def metrics_blocks() -> dict[str, Iterable[str]]:
    """Return the tables of metrics, and of the buckets of histograms."""
    header = ("metric", "type", "labels", "meaning")
    return {
        "workers": table(header, map(_row, METRICS)),
        "buckets": table(("histogram", "upper bounds"), _buckets()),
        "operator": table(header, map(_operator_row, operator_families())),
    }


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


def questions(page: str) -> dict[str, str]:
    """Return the questions of the page and the queries that answer them."""
    rows = re.findall(r"^\| ([^|]*\?) \| `(.+)` \|$", page, re.MULTILINE)
    return {asked: query.replace(r"\|", "|") for asked, query in rows}


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
