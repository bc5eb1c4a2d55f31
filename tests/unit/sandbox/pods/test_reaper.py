"""Ended pods are deleted together, and none is left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from swe_rollout.cluster.objects import Metadata, Pod, PodStatus
from swe_rollout.cluster.watch import PodWatch
from swe_rollout.sandbox.pods import reaper as pod_reaper
from swe_rollout.sandbox.pods.reaper import PodReaper
from unit.conftest import Connect
from waits import until

SELECTOR = "swe-rollout.dev/run=r1"


class Server:
    """Pods by uid with their phases; deletions take effect at once."""

    def __init__(self, phases: dict[str, str]) -> None:
        self.phases = phases
        self.batches: list[dict[str, str]] = []
        self.singles: list[str] = []
        self.may_batch = True

    async def respond(self, request: web.Request) -> web.StreamResponse:
        name = request.path.rsplit("/", 1)[-1]
        match request.method, name:
            case "GET", _:
                items = [pod(uid, phase) for uid, phase in self.phases.items()]
                return web.json_response({"metadata": {}, "items": items})
            case "DELETE", "pods" if not self.may_batch:
                return web.json_response({"code": 403, "reason": "Forbidden"}, status=403)
            case "DELETE", "pods":
                self.batches.append(dict(request.query))
                return web.json_response({})
            case _:
                self.singles.append(name)
                return web.json_response({})


def pod(uid: str, phase: str) -> dict[str, Any]:
    return {"metadata": {"name": uid, "uid": uid}, "status": {"phase": phase}}


class Seen(PodWatch):
    """A watch that sees the server's state without delay."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def pod(self, uid: str) -> Pod | None:
        phase = self._server.phases.get(uid)
        found = Metadata(name=uid, uid=uid)
        return None if phase is None else Pod(metadata=found, status=PodStatus(phase=phase))


@pytest.fixture
async def reaper(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    monkeypatch.setattr(pod_reaper, "POLL_S", 0.01)
    open_reapers: list[PodReaper] = []

    async def make(server: Server, *, in_use: set[str] | None = None) -> PodReaper:
        made = PodReaper(
            await connect(server.respond),
            Seen(server),
            namespace="rl",
            selector=SELECTOR,
            in_use={"another"} if in_use is None else in_use,
        )
        open_reapers.append(made)
        for uid in server.phases:
            made.add(Pod(metadata=Metadata(name=uid, uid=uid)))
        return made

    yield make
    for each in open_reapers:
        await each.aclose()


def many(phase: str, count: int) -> dict[str, str]:
    return {f"{phase.lower()}-{number}": phase for number in range(count)}


async def test_few_ended_pods_wait_for_others(reaper: Any) -> None:
    server = Server(many("Succeeded", pod_reaper.BATCH_PODS - 1))
    ours = await reaper(server)
    await asyncio.sleep(0.1)
    assert (server.batches, server.singles) == ([], [])
    assert ours.is_closed(Pod(metadata=Metadata(uid="succeeded-0")))


async def test_many_are_deleted_by_one_request_that_spares_failed_ones(reaper: Any) -> None:
    server = Server(many("Succeeded", pod_reaper.BATCH_PODS))
    await reaper(server)
    await until(lambda: server.batches)
    assert server.batches == [
        {"labelSelector": SELECTOR, "fieldSelector": "status.phase=Succeeded"}
    ]
    assert server.singles == []


async def test_few_do_not_wait_longer_than_they_may(
    reaper: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_reaper, "BATCH_AFTER_S", 0.05)
    server = Server(many("Succeeded", 2))
    await reaper(server)
    await until(lambda: server.batches)
    assert len(server.batches) == 1


async def test_where_nothing_else_runs_pods_do_not_wait_for_others(
    reaper: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_reaper, "IDLE_S", 0.05)
    in_use: set[str] = {"another"}
    server = Server(many("Succeeded", 1))
    await reaper(server, in_use=in_use)
    await asyncio.sleep(0.1)
    assert server.batches == []
    in_use.clear()
    await until(lambda: server.batches)
    assert len(server.batches) == 1


async def test_a_closed_pod_that_failed_or_does_not_end_is_deleted_alone(
    reaper: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_reaper, "END_S", 3600.0)
    server = Server({"failed": "Failed", "stuck": "Running"})
    await reaper(server)
    await until(lambda: server.singles)
    await asyncio.sleep(0.1)
    assert server.singles == ["failed"]
    monkeypatch.setattr(pod_reaper, "END_S", 0.0)
    await until(lambda: len(server.singles) > 1)
    assert server.singles == ["failed", "stuck"]
    assert server.batches == []


async def test_where_batches_are_not_allowed_each_is_deleted_alone(reaper: Any) -> None:
    server = Server(many("Succeeded", pod_reaper.BATCH_PODS))
    server.may_batch = False
    await reaper(server)
    await until(lambda: len(server.singles) >= len(server.phases))
    assert sorted(server.singles) == sorted(server.phases)


async def test_the_end_deletes_everything_by_one_request(reaper: Any) -> None:
    server = Server({"one": "Running", "two": "Succeeded"})
    ours = await reaper(server)
    await ours.aclose()
    assert server.batches == [{"labelSelector": SELECTOR}]
    server.phases.clear()


async def test_a_run_without_pods_writes_nothing_at_its_end(reaper: Any) -> None:
    server = Server({})
    await (await reaper(server)).aclose()
    assert server.batches == []
