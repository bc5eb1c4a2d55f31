"""Bringing up a pod when answers get lost and reasons come and go."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from swe_rollout.cluster.watch import PodWatch
from swe_rollout.sandbox import diagnose, pod_launch
from swe_rollout.sandbox.base import Role, SandboxRequest
from swe_rollout.sandbox.pod_launch import PodLaunch
from swe_rollout.sandbox.pod_spec import RUN_LABEL, RunOwner, pod_manifest
from swe_rollout.spec.job import PodSandbox
from swe_rollout.trajectory import EpisodeId

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from unit.cluster.conftest import Connect

REQUEST = SandboxRequest(EpisodeId("job", "one", 0), Role.AGENT, "image:1", "/")
READY = {
    "phase": "Running",
    "containerStatuses": [{"name": "sandbox", "ready": True, "state": {"running": {}}}],
}
UNSCHEDULABLE = {
    "phase": "Pending",
    "conditions": [
        {"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}
    ],
}


def pulling(message: str) -> dict[str, Any]:
    waiting = {"waiting": {"reason": "ErrImagePull", "message": message}}
    return {"phase": "Pending", "containerStatuses": [{"name": "sandbox", "state": waiting}]}


class Server:
    """One pod whose status goes through a list of (seconds to stay, status)."""

    def __init__(self, statuses: list[tuple[float, dict[str, Any]]]) -> None:
        self.statuses = statuses
        self.metadata: dict[str, Any] = {}
        self.events: list[dict[str, Any]] = []
        self.creations = 0
        self.created = asyncio.Event()
        self.lose_first_answer = False
        self.deleted: list[str] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        match request.method, request.path.rsplit("/", 1)[-1]:
            case "POST", _:
                return await self._create(request)
            case "DELETE", _:
                self.deleted.append((await request.json())["preconditions"]["uid"])
                return web.json_response({})
            case "GET", "events":
                return web.json_response({"items": self.events})
            case "GET", "pods" if "watch" in request.query:
                return await self._watch(request)
            case "GET", "pods":
                return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})
            case _:
                return web.json_response(self._pod(self.statuses[0][1]))

    async def _create(self, request: web.Request) -> web.Response:
        self.creations += 1
        if self.metadata:
            return web.json_response({"code": 409, "reason": "AlreadyExists"}, status=409)
        body = await request.json()
        self.metadata = {**body["metadata"], "uid": "u1", "resourceVersion": "2"}
        self.created.set()
        if self.lose_first_answer and request.transport is not None:
            request.transport.close()
        return web.json_response(self._pod({"phase": "Pending"}))

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await self.created.wait()
        for stay_s, status in self.statuses:
            event = {"type": "MODIFIED", "object": self._pod(status)}
            await response.write(json.dumps(event).encode() + b"\n")
            await asyncio.sleep(stay_s)
        await asyncio.sleep(60)
        return response

    def _pod(self, status: dict[str, Any]) -> dict[str, Any]:
        return {"metadata": self.metadata, "status": status}


@pytest.fixture
async def launch(connect: Connect) -> AsyncIterator[Any]:
    watches: list[PodWatch] = []

    async def make(server: Server) -> PodLaunch:
        client = await connect(server.answer)
        watch = PodWatch(client, namespace="default", selector=f"{RUN_LABEL}=run")
        watches.append(watch)
        await watch.start()
        manifest = pod_manifest(REQUEST, PodSandbox(), RunOwner("run", "now"))
        return PodLaunch(client, watch, manifest, namespace="default")

    yield make
    for watch in watches:
        await watch.aclose()


async def test_a_creation_whose_answer_was_lost_is_not_made_twice(launch: Any) -> None:
    server = Server([(0, READY)])
    server.lose_first_answer = True
    pod = await (await launch(server)).run(start_s=5)
    assert pod.metadata.uid == "u1"
    assert server.creations == 2
    assert server.deleted == []


async def test_a_reason_that_passes_is_forgiven(
    launch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnose, "_PULL_S", 0.5)
    server = Server([(0.2, pulling("i/o timeout")), (0, READY)])
    assert (await (await launch(server)).run(start_s=5)).metadata.uid == "u1"


async def test_a_reason_that_stands_is_told_with_events(
    launch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnose, "_PULL_S", 0.2)
    server = Server([(0.15, pulling("i/o timeout")), (0, pulling("i/o timeout again"))])
    server.events = [{"type": "Warning", "reason": "NodePressure", "message": "disk is full"}]
    with pytest.raises(diagnose.ImageUnavailableError, match="disk is full"):
        await (await launch(server)).run(start_s=5)


async def test_a_pod_for_which_a_node_is_being_added_is_waited_for(
    launch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnose, "_SCHEDULE_S", 0.1)
    monkeypatch.setattr(pod_launch, "_SCALING_S", 0.1)
    server = Server([(0.5, UNSCHEDULABLE), (0, READY)])
    with pytest.raises(diagnose.UnschedulableError):
        await (await launch(server)).run(start_s=5)
    server = Server([(0.5, UNSCHEDULABLE), (0, READY)])
    server.events = [{"type": "Normal", "reason": "TriggeredScaleUp", "message": "1 to 2"}]
    assert (await (await launch(server)).run(start_s=5)).metadata.uid == "u1"


async def test_undoing_deletes_our_own_pod_and_no_other(launch: Any) -> None:
    server = Server([(0, READY)])
    ours = await launch(server)
    await ours.run(start_s=5)
    await ours.undo()
    assert server.deleted == ["u1"]
    server.metadata["labels"][RUN_LABEL] = "another"
    await ours.undo()
    assert server.deleted == ["u1"]
