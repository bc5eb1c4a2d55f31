"""Logs of worker pods: merged in order, followed across lost connections."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from swe_rollout.cluster import worker_logs
from swe_rollout.cluster.worker_logs import LogLine, follow_logs, read_logs
from unit.cluster.job_server import job, open_jobs
from unit.conftest import Connect
from waits import PATIENCE_S


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_logs, "_RESUME_S", 0.01)
    monkeypatch.setattr(worker_logs, "_DISCOVERY_S", 0.01)


def pod(name: str, phase: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": name}, "status": {"phase": phase}}


class Workers:
    """Two workers; the log of the first is cut once and resumes after the last line."""

    def __init__(self) -> None:
        self.cut = True
        self.since: list[str] = []

    async def respond(self, request: web.Request) -> web.StreamResponse:
        parts = request.path.split("/")
        if parts[-1] == "log":
            return await self._log(request, parts[-2])
        if parts[-2] == "pods":
            running = parts[-1] == "a" and self.cut
            return web.json_response(pod(parts[-1], "Running" if running else "Succeeded"))
        if parts[-1] == "pods":
            return web.json_response({"items": [pod("b", "Succeeded"), pod("a", "Succeeded")]})
        return web.json_response(job(completionTime="2026-01-01T00:00:09Z"))

    async def _log(self, request: web.Request, name: str) -> web.StreamResponse:
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
    async def respond(request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/log"):
            if request.query.get("previous") != "true":
                return web.Response(text="2026-01-01T00:00:05Z now\n")
            if kept:
                return web.Response(text="2026-01-01T00:00:01Z before\n")
            gone = {"code": 400, "reason": "BadRequest", "message": "previous container not found"}
            return web.json_response(gone, status=400)
        worker = pod("a", "Running")
        worker["status"]["containerStatuses"] = [{"name": "worker", "restartCount": 2}]
        return web.json_response({"items": [worker]})

    lines = await read_logs(await open_jobs(connect, respond), "ns", "demo")

    assert [line.text for line in lines] == (["before", "now"] if kept else ["now"])


async def test_a_followed_log_loses_and_doubles_nothing_when_the_connection_is_cut(
    connect: Connect,
) -> None:
    workers = Workers()
    jobs = await open_jobs(connect, workers.respond)
    lines: list[LogLine] = []

    async with asyncio.timeout(PATIENCE_S):
        await follow_logs(jobs, "ns", "demo", on_line=lines.append)

    assert sorted(line.text for line in lines) == ["first", "from b", "last"]
    assert workers.since == ["", "2026-01-01T00:00:01Z"]
