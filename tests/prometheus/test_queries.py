"""A real Prometheus scrapes a real run and an operator: every query of the dashboard has data.

What is scraped is also linted by promtool: names, types, units and help texts.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
import yaml

from checkout import ROOT
from controller.builders import job as job_object
from e2e.command import job_writer
from rollout_dev.codegen.reference import questions
from rollout_dev.dev_cluster.binaries import PROMETHEUS
from rollout_operator.metrics import Metrics
from swe_rollout.errors import StoreError
from swe_rollout.events import (
    AttemptBegan,
    AttemptEnded,
    SandboxStart,
    Span,
    StoreFailed,
    Subscriber,
    TurnId,
)
from swe_rollout.spec.load import load_job
from swe_rollout.telemetry.setup import observing
from swe_rollout.worker.job import run_job
from unit.export.export_parts import failed, trajectory
from unit.telemetry.telemetry_parts import engine_call

pytestmark = [
    pytest.mark.prometheus,
    pytest.mark.skipif(
        not PROMETHEUS.folder.is_dir(), reason="no Prometheus is built: scripts/prometheus"
    ),
]
METRICS = ROOT / "docs" / "reference" / "metrics.md"
DASHBOARD = ROOT / "manifests" / "monitoring" / "swe-rollout.json"
SCRAPE_S = 1
WINDOW = "1h"
"""Longer than the test, however busy the machine is."""
PATIENCE_S = 90.0


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@asynccontextmanager
async def prometheus(folder: Path, workers: int, operator: int) -> AsyncIterator[str]:
    """Run a Prometheus that scrapes both, with the labels that the monitors of pods give."""
    labels = {"namespace": "rollouts", "pod": "demo-workers-0", "rolloutjob": "demo"}
    scrapes = [
        {
            "job_name": "workers",
            "static_configs": [{"targets": [f"127.0.0.1:{workers}"], "labels": labels}],
        },
        {
            "job_name": "operator",
            "honor_labels": True,
            "static_configs": [{"targets": [f"127.0.0.1:{operator}"]}],
        },
    ]
    config = folder / "prometheus.yml"
    interval = {"scrape_interval": f"{SCRAPE_S}s", "scrape_timeout": f"{SCRAPE_S}s"}
    config.write_text(yaml.safe_dump({"global": interval, "scrape_configs": scrapes}))
    port = free_port()
    program = await asyncio.create_subprocess_exec(
        PROMETHEUS.folder / "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        program.terminate()
        await program.wait()


def ask(server: str, query: str) -> list[dict[str, Any]]:
    """Return what a query finds now; raises for one that Prometheus refuses."""
    address = f"{server}/api/v1/query?{urlencode({'query': query})}"
    with urlopen(address, timeout=10) as response:  # noqa: S310 - loopback
        found = json.load(response)
    assert found["status"] == "success", found
    result: list[dict[str, Any]] = found["data"]["result"]
    return result


def has_data(found: list[dict[str, Any]]) -> bool:
    """Whether a query found numbers: a quantile of nothing is none."""
    return any(row["value"][1] != "NaN" for row in found)


def panels() -> Iterator[tuple[str, str]]:
    """Yield the title and each query of the dashboard's panels, as Grafana would ask it."""
    values = {"$namespace": ".*", "$rolloutjob": ".*", "$__rate_interval": WINDOW}
    for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]:
        for target in panel["targets"]:
            query = target["expr"]
            for name, value in values.items():
                query = query.replace(name, value)
            assert "$" not in query
            yield f"{panel['title']}: {target['legendFormat']}", query


def break_something(observer: Subscriber) -> None:
    """Report what a healthy run has none of."""
    broken = failed(trajectory("broken"))
    observer(AttemptBegan(broken.episode, 1))
    observer(AttemptEnded(broken.episode, broken))
    observer(StoreFailed(StoreError("the store is down")))
    start = SandboxStart(broken.episode, "agent", Span(time.time(), 1.0, "SandboxError"))
    observer(start)
    turn = TurnId(broken.episode, 0)
    observer(engine_call(turn, error="EngineLostError"))


def operator() -> Metrics:
    metrics = Metrics()
    metrics.action_started("create-workers")
    metrics.status_written()
    with metrics.round():
        pass
    return metrics


async def eventually(server: str, queries: dict[str, str], act: Callable[[], None]) -> list[str]:
    """Ask until every query has data, acting in between; return those that have none."""
    left, until = dict(queries), time.monotonic() + PATIENCE_S
    while left and time.monotonic() < until:
        act()
        await asyncio.sleep(SCRAPE_S)
        for title, query in tuple(left.items()):
            if has_data(await asyncio.to_thread(ask, server, query)):
                del left[title]
    return sorted(left)


async def test_every_query_of_the_dashboard_and_of_the_docs_has_data(tmp_path: Path) -> None:
    port, controller = free_port(), operator()
    operated = free_port()
    stop = controller.serve(
        operated, lambda: [job_object(status={"episodes": {"total": 8, "committed": 4}})]
    )
    queries = dict(panels()) | questions(METRICS.read_text("utf-8"))
    assert len(queries) > 30
    try:
        async with (
            observing(f"127.0.0.1:{port}", {}) as observer,
            prometheus(tmp_path, port, operated) as server,
        ):
            assert observer is not None
            # Twice: a series that is new has no rate yet.
            for scenario in ("gold", "malformed"):
                await until_scraped(server)
                folder = tmp_path / scenario
                job = job_writer(folder, store=f"file://{folder}")(scenarios=[scenario])
                summary = await run_job(
                    load_job(job.path),
                    base_dir=folder,
                    publish=observer,
                    on_note=lambda _: None,
                )
                assert summary.ran == 1

            def act() -> None:
                break_something(observer)
                with controller.round():
                    pass

            assert await eventually(server, queries, act) == []
            assert not has_data(ask(server, "rate(swe_rollout_no_such_total[1m])"))
            text = await asyncio.to_thread(scrape, port)
            committed = re.findall(
                r"^swe_rollout_episodes_finished_total\S+ (\S+)$", text, re.MULTILINE
            )
            assert sum(map(float, committed)) == 2
            lint(text)
            lint(await asyncio.to_thread(scrape, operated))
    finally:
        stop()


async def until_scraped(server: str) -> None:
    """Wait for scrapes of both targets: a rate needs a value before."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            await asyncio.sleep(3 * SCRAPE_S)
            try:
                up = await asyncio.to_thread(ask, server, "up == 1")
            except OSError:
                continue
            if len(up) == 2:
                return


def scrape(port: int) -> str:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
        text: str = response.read().decode()
    return text


def lint(text: str) -> None:
    done = subprocess.run(
        [PROMETHEUS.folder / "promtool", "check", "metrics"],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
