"""The server of metrics: addresses, crowds and slow clients, the lag of the loop."""

from __future__ import annotations

import asyncio
import socket
import time
from urllib.request import urlopen

import pytest

from swe_rollout.errors import PrerequisiteError, UsageError
from swe_rollout.telemetry import server
from swe_rollout.telemetry.metrics import RolloutMetrics
from swe_rollout.telemetry.server import MAX_CLIENTS, MetricsAddress, serving, watch_loop
from waits import PATIENCE_S, until

LOCAL = MetricsAddress("127.0.0.1", 0)


def fetch(port: int) -> str:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S) as response:
        text: str = response.read().decode()
    return text


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9464", MetricsAddress("127.0.0.1", 9464)),
        ("0.0.0.0:9464", MetricsAddress("0.0.0.0", 9464)),  # noqa: S104
        (":9464", MetricsAddress("", 9464)),
        ("[::1]:0", MetricsAddress("::1", 0)),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, address: MetricsAddress) -> None:
    assert MetricsAddress.parse(text) == address


@pytest.mark.parametrize("text", ["", "host", "host:", "1:2:x", "::1:99999", "h:-1", "h:٣"])
def test_any_other_text_is_refused_with_a_cure(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        MetricsAddress.parse(text)
    assert "127.0.0.1:9464" in refused.value.fix


async def test_metrics_are_served_while_the_block_runs() -> None:
    async with serving(RolloutMetrics(), LOCAL) as port:
        assert "swe_rollout_turns_total 0.0" in await asyncio.to_thread(fetch, port)
    with pytest.raises(OSError, match="refused"):
        await asyncio.to_thread(fetch, port)


async def test_every_address_of_the_machine_is_served() -> None:
    async with serving(RolloutMetrics(), MetricsAddress("", 0)) as port:
        assert "swe_rollout_turns_total" in await asyncio.to_thread(fetch, port)


async def test_an_address_that_is_taken_is_an_error() -> None:
    async with serving(RolloutMetrics(), LOCAL) as port:
        with pytest.raises(PrerequisiteError, match=str(port)):
            async with serving(RolloutMetrics(), MetricsAddress("127.0.0.1", port)):
                pass


async def test_a_crowd_is_sent_away_and_nobody_else_is_later() -> None:
    async with serving(RolloutMetrics(), LOCAL) as port:
        crowd = [socket.create_connection(("127.0.0.1", port)) for _ in range(MAX_CLIENTS)]
        try:
            for each in crowd:
                each.sendall(b"GET /metrics")
            assert await asyncio.to_thread(is_closed, port)
        finally:
            for each in crowd:
                each.close()
        assert await asyncio.to_thread(is_served, port)


async def test_a_client_that_says_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server._Handler, "timeout", 0.1)
    async with serving(RolloutMetrics(), LOCAL) as port:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.settimeout(30)
            client.sendall(b"GET /met")
            assert await asyncio.to_thread(client.recv, 1) == b""


def is_closed(port: int) -> bool:
    """Whether a further client is sent away, once all places are taken."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        with socket.create_connection(("127.0.0.1", port)) as further:
            further.settimeout(0.05)
            try:
                if further.recv(1) == b"":
                    return True
            except TimeoutError:
                continue
            except ConnectionError:
                return True
    return False


def is_served(port: int) -> bool:
    """Whether a client is served in the end."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        try:
            return bool(fetch(port))
        except OSError:
            time.sleep(0.05)
    return False


async def test_a_held_loop_lags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "SAMPLE_S", 0.01)
    metrics = RolloutMetrics()
    watching = asyncio.create_task(watch_loop(metrics))

    def lag_s() -> float:
        name = "swe_rollout_event_loop_lag_seconds_sum"
        return metrics.registry.get_sample_value(name) or 0.0

    await asyncio.sleep(0)  # it has begun to wait
    time.sleep(0.2)  # noqa: ASYNC251 - what it measures
    await until(lambda: lag_s() > 0.1)
    watching.cancel()
