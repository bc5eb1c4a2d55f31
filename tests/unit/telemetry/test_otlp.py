"""The SDK as the variables say: exporters, protocols, headers, and a collector that is down."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from structlog.testing import capture_logs

from swe_rollout.errors import PrerequisiteError, UsageError
from swe_rollout.telemetry import otlp
from swe_rollout.telemetry.otlp import exporting
from swe_rollout.text.redaction import redact
from unit.export.export_parts import trajectory
from unit.telemetry.telemetry_parts import EPISODE


@pytest.fixture
async def collector() -> AsyncIterator[tuple[str, list[ExportTraceServiceRequest]]]:
    """A collector of spans; yields its address, and what it gets."""
    got: list[ExportTraceServiceRequest] = []

    async def take(request: web.Request) -> web.Response:
        assert request.headers["authorization"] == "Bearer t0k3n-of-the-collector"
        data = await request.read()
        if request.headers.get("Content-Encoding") == "gzip":
            raise AssertionError("nobody asked for it")
        got.append(ExportTraceServiceRequest.FromString(data))
        return web.Response()

    app = web.Application()
    app.router.add_post("/v1/traces", take)
    server = TestServer(app)
    await server.start_server()
    yield str(server.make_url("")).rstrip("/"), got
    await server.close()


def play(environment: dict[str, str]) -> None:
    with exporting(environment) as observer:
        observer.attempt_began(EPISODE, 1)
        observer.attempt_ended(EPISODE, trajectory())


async def test_spans_reach_a_collector_over_http(
    collector: tuple[str, list[ExportTraceServiceRequest]], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, got = collector
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": address,
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer t0k3n-of-the-collector",
        "OTEL_RESOURCE_ATTRIBUTES": "team=rl",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    await asyncio.to_thread(play, variables)
    (resource,) = [each for request in got for each in request.resource_spans]
    attributes = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert (attributes["service.name"], attributes["team"]) == ("swe-rollout", "rl")
    assert [span.name for each in resource.scope_spans for span in each.spans] == ["episode"]
    assert "t0k3n" not in redact("sent Bearer t0k3n-of-the-collector")


def test_a_collector_that_is_down_delays_nobody_and_is_in_our_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The end waits for the last spans for so long, whatever the exporter still tries."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", variables["OTEL_EXPORTER_OTLP_ENDPOINT"])
    monkeypatch.setattr(otlp, "LAST_SPANS_S", 0.125)
    waits: list[float | None] = []
    begun: list[threading.Thread] = []

    class Patient(threading.Thread):
        def start(self) -> None:
            begun.append(self)
            super().start()

        def join(self, timeout: float | None = None) -> None:
            waits.append(timeout)
            super().join(timeout)

    monkeypatch.setattr(threading, "Thread", Patient)
    with capture_logs() as lines:
        play(variables)
    assert 0.125 in waits
    for thread in begun:  # it draws its pauses from the random numbers that later tests watch
        threading.Thread.join(thread)
    assert {line["event"] for line in lines} <= {"opentelemetry"}


def test_an_exporter_that_is_not_there_is_named() -> None:
    with (
        pytest.raises(PrerequisiteError, match="zipkin"),
        exporting({"OTEL_TRACES_EXPORTER": "zipkin"}),
    ):
        pass


def test_a_protocol_that_is_not_known_is_refused() -> None:
    with (
        pytest.raises(UsageError, match="carrier pigeon"),
        exporting({"OTEL_EXPORTER_OTLP_PROTOCOL": "carrier pigeon"}),
    ):
        pass
