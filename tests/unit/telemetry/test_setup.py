"""What a command opens: nothing by default, metrics by an address, spans by OTEL_* variables."""

from __future__ import annotations

import subprocess
import sys

import pytest
from structlog.testing import capture_logs

from swe_rollout.errors import PrerequisiteError, UsageError
from swe_rollout.telemetry import setup
from swe_rollout.telemetry.setup import observing, observing_if_possible, wants_spans


async def test_by_default_nothing_is_observed() -> None:
    async with observing("", {}) as observer:
        assert observer is None


def test_by_default_neither_package_is_imported() -> None:
    code = """
import sys
import asyncio
import swe_rollout.worker.job, swe_rollout.worker.cluster_worker, swe_rollout.cli.run
from swe_rollout.telemetry.setup import observing
async def main():
    async with observing("", {}) as observer:
        assert observer is None
asyncio.run(main())
print([name for name in ("prometheus_client", "opentelemetry.sdk") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "mine"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "console"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, False),
        ({"OTEL_SDK_DISABLED": "True", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, False),
    ],
)
def test_the_standard_variables_decide(environment: dict[str, str], *, wanted: bool) -> None:
    assert wants_spans(environment) is wanted


async def test_metrics_and_spans_are_opened_together() -> None:
    async with observing("127.0.0.1:0", {"OTEL_TRACES_EXPORTER": "console"}) as observer:
        assert observer is not None
        assert [type(each).__name__ for each in observer._subscribers] == [  # type: ignore[attr-defined]
            "RolloutMetrics",
            "SpanObserver",
        ]


@pytest.mark.parametrize("extra", ["metrics", "otel"])
async def test_a_missing_package_is_named_with_its_extra(
    extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup, "find_spec", lambda _: None)
    address = "127.0.0.1:0" if extra == "metrics" else ""
    environment = {"OTEL_TRACES_EXPORTER": "otlp"} if extra == "otel" else {}
    with pytest.raises(PrerequisiteError) as missing:
        async with observing(address, environment):
            pass
    assert f"swe-rollout[{extra}]" in missing.value.fix


async def test_a_workers_job_does_not_end_for_its_telemetry() -> None:
    with capture_logs() as lines:
        async with observing_if_possible("nowhere") as observer:
            assert observer is None
    assert [line["event"] for line in lines] == ["not_observed"]


async def test_errors_of_the_work_pass_through_a_workers_telemetry() -> None:
    async def work() -> None:
        async with observing_if_possible("127.0.0.1:0") as observer:
            assert observer is not None
            raise UsageError("its own")

    with pytest.raises(UsageError, match="its own"):
        await work()
