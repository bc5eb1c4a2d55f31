"""A scripted API server for one pod, and a launch that talks to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from aiohttp import web

from swe_rollout.cluster.watch import PodWatch
from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.base import Role, SandboxRequest
from swe_rollout.sandbox.pods.launch import PodLaunch
from swe_rollout.sandbox.pods.pod_spec import RUN_LABEL, RunIdentity, pod_manifest
from swe_rollout.sandbox.pods.running import PodRuntime
from swe_rollout.spec.sandbox import PodSandbox
from swe_rollout.types.episode import EpisodeId
from unit.conftest import Connect

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


class PodServer:
    """One pod whose status goes through a list of (seconds to stay, status)."""

    def __init__(self, statuses: list[tuple[float, dict[str, Any]]]) -> None:
        self.statuses = statuses
        self.metadata: dict[str, Any] = {}
        self.events: list[dict[str, Any]] = []
        self.creations = 0
        self.pods = 0
        self.created = asyncio.Event()
        self.lose_first_response = False
        self.response_s = 0.0
        """How long the response to a creation is delayed; the watch reports it at once."""
        self.forgets = False
        """Whether a deletion takes effect at once."""
        self.deleted: list[str] = []
        self.rival = False
        """Whether another process always creates the pod first."""

    async def respond(self, request: web.Request) -> web.StreamResponse:
        match request.method, request.path.rsplit("/", 1)[-1]:
            case "POST", _:
                return await self._create(request)
            case "DELETE", _:
                self.deleted.append((await request.json())["preconditions"]["uid"])
                self.metadata = {} if self.forgets or self.rival else self.metadata
                return web.json_response({})
            case "GET", "events":
                return web.json_response({"items": self.events})
            case "GET", "pods" if "watch" in request.query:
                return await self._watch(request)
            case "GET", "pods":
                return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})
            case _:
                found = self._pod(self.statuses[0][1])
                return web.json_response(found, status=200 if self.metadata else 404)

    async def _create(self, request: web.Request) -> web.Response:
        self.creations += 1
        if self.rival:
            self.metadata = {"uid": "rival", "labels": {}}
        if self.metadata:
            return web.json_response({"code": 409, "reason": "AlreadyExists"}, status=409)
        body = await request.json()
        self.pods += 1
        self.metadata = {**body["metadata"], "uid": f"u{self.pods}", "resourceVersion": "2"}
        self.created.set()
        if self.lose_first_response and request.transport is not None:
            request.transport.close()
        await asyncio.sleep(self.response_s)
        return web.json_response(self._pod({"phase": "Pending"}))

    async def _watch(self, request: web.Request) -> NoReturn:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await self.created.wait()
            self.created.clear()
            for stay_s, status in self.statuses:
                event = {"type": "MODIFIED", "object": self._pod(status)}
                await response.write(json.dumps(event).encode() + b"\n")
                await asyncio.sleep(stay_s)

    def _pod(self, status: dict[str, Any]) -> dict[str, Any]:
        return {"metadata": self.metadata, "status": status}


@pytest.fixture
def closed() -> set[str]:
    """Uids of pods that this run closed."""
    return set()


@pytest.fixture
def warnings() -> list[SandboxError]:
    """Errors that were warned of before they were raised."""
    return []


@pytest.fixture
async def launch(
    connect: Connect, closed: set[str], warnings: list[SandboxError]
) -> AsyncIterator[Any]:
    watches: list[PodWatch] = []

    async def make(server: PodServer) -> PodLaunch:
        client = await connect(server.respond)
        watch = PodWatch(client, namespace="default", selector=f"{RUN_LABEL}=run")
        watches.append(watch)
        await watch.start()
        manifest = pod_manifest(REQUEST, PodSandbox(), RunIdentity("run", "now"))
        reaper: Any = SimpleNamespace(is_closed=lambda pod: pod.metadata.uid in closed)
        runtime = PodRuntime(client, watch, reaper, "default", set())
        return PodLaunch(runtime, manifest, on_start_warning=warnings.append)

    yield make
    for watch in watches:
        await watch.aclose()
