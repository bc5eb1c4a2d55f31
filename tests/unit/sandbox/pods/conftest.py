"""A scripted API server for one pod, and a launch that talks to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

from kube_api import KubeApi
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

UNMOUNTED = {
    "phase": "Pending",
    "conditions": [
        {"type": "PodScheduled", "status": "True"},
        {"type": "PodReadyToStartContainers", "status": "False"},
    ],
    "containerStatuses": [
        {"name": "sandbox", "state": {"waiting": {"reason": "ContainerCreating"}}}
    ],
}


def pulling(message: str) -> dict[str, Any]:
    waiting = {"waiting": {"reason": "ErrImagePull", "message": message}}
    return {"phase": "Pending", "containerStatuses": [{"name": "sandbox", "state": waiting}]}


class PodServer(KubeApi):
    """A server whose pods go through a list of (seconds to stay, status)."""

    def __init__(self, statuses: list[tuple[float, dict[str, Any]]]) -> None:
        super().__init__()
        self.statuses = statuses
        self.response_s = 0.0
        """How long the response to a creation is delayed; the watch reports it at once."""
        self._playing: set[asyncio.Task[None]] = set()

    def created(self, new: dict[str, Any]) -> None:
        self._playing.add(asyncio.create_task(self._play(new)))

    def report(self, kind: str, reason: str, message: str) -> None:
        """Report an event about the first pod."""
        about = {"involvedObject": {"uid": "u1"}, "metadata": {"name": reason}}
        event = {**about, "type": kind, "reason": reason, "message": message}
        self.objects["events", "default", reason] = event

    async def respond(self, request: web.Request) -> web.StreamResponse:
        response = await super().respond(request)
        await asyncio.sleep(self.response_s if request.method == "POST" else 0)
        return response

    async def _play(self, pod: dict[str, Any]) -> None:
        for stay_s, status in self.statuses:
            pod["status"] = status
            self.tell(pod)
            await asyncio.sleep(stay_s)


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

    async def make(server: PodServer, sandbox: PodSandbox | None = None) -> PodLaunch:
        client = await connect(server.respond)
        watch = PodWatch(client, namespace="default", selector=f"{RUN_LABEL}=run")
        watches.append(watch)
        await watch.start()
        manifest = pod_manifest(REQUEST, sandbox or PodSandbox(), RunIdentity("run", "now"))
        reaper: Any = SimpleNamespace(is_closed=lambda pod: pod.metadata.uid in closed)
        runtime = PodRuntime(client, watch, reaper, "default", set())
        return PodLaunch(runtime, manifest, on_start_warning=warnings.append)

    yield make
    for watch in watches:
        await watch.aclose()
