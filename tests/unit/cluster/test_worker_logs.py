"""Logs of worker pods: merged in order, followed across lost connections."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from aiohttp import web

from kube_api import KubeApi, pod, refusal
from swe_rollout.cluster import worker_logs
from swe_rollout.cluster.worker_logs import LogLine, follow_logs, read_logs
from unit.cluster.job_server import job, open_jobs
from unit.conftest import Connect
from waits import PATIENCE_S


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_logs, "_RESUME_S", 0.01)
    monkeypatch.setattr(worker_logs, "_DISCOVERY_S", 0.01)


WORKER = {"swe-rollout.dev/job": "demo", "swe-rollout.dev/role": "worker"}


class Workers(KubeApi):
    """Two workers; the log of the first is cut once and resumes after the last line."""

    def __init__(self) -> None:
        self.pair = [pod(each, "Running", labels=WORKER, namespace="ns") for each in "ba"]
        self.pair[0]["status"]["phase"] = "Succeeded"
        super().__init__(rolloutjobs=[job(completionTime="2026-01-01T00:00:09Z")], pods=self.pair)
        self.cut = True
        self.since: list[str] = []
        self.hook = self._log

    async def _log(self, request: web.Request) -> web.StreamResponse | None:
        *_, name, last = request.path.split("/")
        if last != "log":
            return None
        assert request.query["timestamps"] == "true"
        if name == "b":
            return web.Response(text="2026-01-01T00:00:02Z from b\n")
        if "previous" in request.query:
            raise AssertionError("only of a container that was restarted")
        self.since.append(request.query.get("sinceTime", ""))
        first = "2026-01-01T00:00:01Z first\n"
        if not self.cut or request.query["follow"] == "false":
            return web.Response(text=f"{first}2026-01-01T00:00:03Z last\n")
        self.cut = False
        self.pair[1]["status"]["phase"] = "Succeeded"
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(first.encode())
        assert request.transport is not None
        request.transport.close()
        return response


async def test_logs_of_all_workers_come_in_the_order_of_time(connect: Connect) -> None:
    jobs = await open_jobs(connect, Workers().respond)

    lines = await read_logs(jobs, "ns", "demo")

    assert [(line.pod, line.text) for line in lines] == [
        ("a", "first"),
        ("b", "from b"),
        ("a", "last"),
    ]


@pytest.mark.parametrize("kept", [True, False])
async def test_a_worker_that_was_restarted_in_place_has_the_log_of_the_one_before_too(
    connect: Connect, *, kept: bool
) -> None:
    worker = pod("a", "Running", labels=WORKER, namespace="ns")
    worker["status"]["containerStatuses"] = [{"name": "worker", "restartCount": 2}]
    server = KubeApi(pods=[worker])

    async def logs(request: web.Request) -> web.Response | None:
        if not request.path.endswith("/log"):
            return None
        if request.query.get("previous") != "true":
            return web.Response(text="2026-01-01T00:00:05Z now\n")
        if kept:
            return web.Response(text="2026-01-01T00:00:01Z before\n")
        return refusal(400, "BadRequest", "previous container not found")

    server.hook = logs
    lines = await read_logs(await open_jobs(connect, server.respond), "ns", "demo")

    assert [line.text for line in lines] == (["before", "now"] if kept else ["now"])


async def test_a_followed_log_loses_and_doubles_nothing_when_the_connection_is_cut(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = Workers()
    jobs = await open_jobs(connect, workers.respond)
    lines: list[LogLine] = []
    requests_at_pause: list[int] = []

    async def pause(seconds: float) -> None:
        assert seconds > 0
        requests_at_pause.append(len(workers.since))

    quick = SimpleNamespace(**vars(asyncio) | {"sleep": pause})
    monkeypatch.setattr(worker_logs, "asyncio", quick)
    async with asyncio.timeout(PATIENCE_S):
        await follow_logs(jobs, "ns", "demo", on_line=lines.append)

    assert sorted(line.text for line in lines) == ["first", "from b", "last"]
    assert workers.since == ["", "2026-01-01T00:00:01Z"]
    assert requests_at_pause == [1], "a proxy that cuts each stream is not asked without a pause"
