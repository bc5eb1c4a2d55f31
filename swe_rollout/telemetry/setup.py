"""Open the telemetry requested for a command: metrics by address, spans by `OTEL_*`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.util import find_spec

import structlog

from swe_rollout.errors import PrerequisiteError, SweRolloutError
from swe_rollout.events import Events, Subscriber

log = structlog.get_logger()

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


@asynccontextmanager
async def observing(
    metrics: str, environment: Mapping[str, str] | None = None
) -> AsyncIterator[Subscriber | None]:
    """Open the requested telemetry while the block runs; yield None if none is requested.

    `metrics` is an address for `MetricsAddress.parse`, or empty for no metrics. Raises UsageError,
    and PrerequisiteError if a package is missing or the address is taken.
    """
    environment = os.environ if environment is None else environment
    async with AsyncExitStack() as stack:
        subscribers: list[Subscriber] = []
        if metrics:
            subscribers.append(await _metrics(metrics, stack))
        if wants_spans(environment):
            subscribers.append(_spans(environment, stack))
        yield Events(*subscribers) if subscribers else None


@asynccontextmanager
async def observing_if_possible(metrics: str) -> AsyncIterator[Subscriber | None]:
    """Do as `observing`, but only log a warning for its errors instead of raising them."""
    async with AsyncExitStack() as stack:
        observer = None
        try:
            observer = await stack.enter_async_context(observing(metrics))
        except SweRolloutError as error:
            log.warning("not_observed", why=str(error), fix=error.fix)
        yield observer


def wants_spans(environment: Mapping[str, str]) -> bool:
    """Whether the standard variables ask for spans: by an endpoint, or by an exporter."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = environment.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    if exporter:
        return exporter != "none"
    return any(environment.get(each) for each in _ENDPOINTS)


async def _metrics(address: str, stack: AsyncExitStack) -> Subscriber:
    _require("prometheus_client", "metrics")
    from prometheus_client import disable_created_metrics

    from swe_rollout.telemetry.metrics import RolloutMetrics
    from swe_rollout.telemetry.server import MetricsAddress, serving

    parsed = MetricsAddress.parse(address)
    # An extra series for each counter and histogram, which is of no use here.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    metrics = RolloutMetrics()
    port = await stack.enter_async_context(serving(metrics, parsed))
    log.info("metrics_served", host=parsed.host or "*", port=port)
    return metrics


def _spans(environment: Mapping[str, str], stack: AsyncExitStack) -> Subscriber:
    _require("opentelemetry.sdk", "otel")
    from swe_rollout.telemetry.otlp import exporting

    return stack.enter_context(exporting(environment))


def _require(package: str, extra: str) -> None:
    try:
        found = find_spec(package)
    except ModuleNotFoundError:
        found = None
    if found is None:
        raise PrerequisiteError(
            f"the package {package} is not installed",
            fix=f"pip install 'swe-rollout[{extra}]', or leave {extra} out",
        )
