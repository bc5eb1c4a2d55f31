"""Set up OpenTelemetry's SDK from the standard `OTEL_*` variables; imported only if set."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import entry_points, version
from typing import TYPE_CHECKING, Final

import structlog
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from swe_rollout.errors import PrerequisiteError, UsageError
from swe_rollout.telemetry.spans import SpanObserver
from swe_rollout.text.redaction import register

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider as AnyTracerProvider

log = structlog.get_logger()

GROUP: Final = "opentelemetry_traces_exporter"
LAST_SPANS_S: Final = 5.0
"""How long shutdown waits for the export of spans, in case the collector is down."""
_PROTOCOLS: Final = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}


@contextmanager
def exporting(environment: Mapping[str, str]) -> Iterator[SpanObserver]:
    """Export spans while the block runs. Raises UsageError or PrerequisiteError."""
    for variable in ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"):
        for pair in environment.get(variable, "").split(","):
            if value := pair.partition("=")[2].strip():
                register(value)
    # The SDK reads the other variables itself: endpoint, headers, sampler, limits, attributes.
    name = environment.get("OTEL_SERVICE_NAME") or "swe-rollout"
    provider = TracerProvider(
        resource=Resource.create({"service.name": name, "service.version": version("swe-rollout")}),
        shutdown_on_exit=False,
    )
    for exporter in _exporters(environment):
        provider.add_span_processor(BatchSpanProcessor(exporter))
    with _logged():
        try:
            yield observer_of(provider)
        finally:
            last = threading.Thread(target=provider.shutdown, name="last-spans", daemon=True)
            last.start()
            last.join(LAST_SPANS_S)


def observer_of(provider: AnyTracerProvider) -> SpanObserver:
    """Return an observer that creates spans in the caller's own provider."""
    return SpanObserver(provider.get_tracer("swe_rollout", version("swe-rollout")))


class _ToOurLog(logging.Handler):
    """Receives the SDK's own messages, which would disrupt a live view on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        log.warning("opentelemetry", says=record.getMessage())


@contextmanager
def _logged() -> Iterator[None]:
    """Send the SDK's messages, such as that a collector is down, to our own log."""
    logger, handler = logging.getLogger("opentelemetry"), _ToOurLog(logging.WARNING)
    before = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.propagate = before
        logger.removeHandler(handler)


def _exporters(environment: Mapping[str, str]) -> Iterator[SpanExporter]:
    names = environment.get("OTEL_TRACES_EXPORTER") or "otlp"
    for name in filter(None, map(str.strip, names.split(","))):
        wanted = _protocol(environment) if name == "otlp" else name
        found = next(iter(entry_points(group=GROUP, name=wanted)), None)
        if found is None:
            raise PrerequisiteError(
                f"there is no exporter {wanted} for spans",
                why="OTEL_TRACES_EXPORTER or OTEL_EXPORTER_OTLP_PROTOCOL names it, and no package "
                "here has it",
                fix="set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf, or install the exporter's "
                "package",
            )
        exporter = found.load()()
        if not isinstance(exporter, SpanExporter):
            raise PrerequisiteError(f"the exporter {wanted} makes no exporter of spans")
        yield exporter


def _protocol(environment: Mapping[str, str]) -> str:
    protocol = (
        environment.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
        or environment.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        or "http/protobuf"
    )
    if protocol not in _PROTOCOLS:
        raise UsageError(
            f"spans can't be exported by {protocol}",
            why="OTEL_EXPORTER_OTLP_PROTOCOL names a protocol that is not known here",
            fix="use http/protobuf or grpc",
        )
    return _PROTOCOLS[protocol]
