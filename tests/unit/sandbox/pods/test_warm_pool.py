"""Claims whose responses are lost, refused or never come; how the pool paces itself.

The supervisors are real, on this machine; the API server is scripted. The real one is in the
cluster tier.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from contract.cut_channel import CutStreamOpener
from swe_rollout.cluster.objects import Pod
from swe_rollout.cluster.watch import PodWatch
from swe_rollout.sandbox.base import Role, SandboxRequest
from swe_rollout.sandbox.pods import warm_pool
from swe_rollout.sandbox.pods.pod_spec import RUN_LABEL, RunIdentity, episode_labels
from swe_rollout.sandbox.pods.reaper import PodReaper
from swe_rollout.sandbox.pods.running import PodRuntime
from swe_rollout.sandbox.pods.warm_pool import WarmPool
from swe_rollout.sandbox.pods.warm_spec import WAITING, WARM_LABEL
from swe_rollout.sandbox.session.session import Session
from swe_rollout.spec.sandbox import PodSandbox, WarmPods
from swe_rollout.types.episode import EpisodeId
from unit.conftest import Connect
from waits import PATIENCE_S, until

READY = {
    "phase": "Running",
    "containerStatuses": [{"name": "sandbox", "ready": True, "state": {"running": {}}}],
}


def request(sample: int = 0, **changes: Any) -> SandboxRequest:
    wanted = SandboxRequest(EpisodeId("job", "one", sample), Role.AGENT, "image:1", "/")
    return replace(wanted, **changes)


class Server:
    """Pods that are ready as soon as they are made."""

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.patches: list[list[dict[str, Any]]] = []
        self.lose_responses = 0
        """How many responses of applied patches to drop."""
        self.taken_by: dict[str, str] = {}
        """Labels that a pod gets from another claimer before the next patch."""
        self.refusal = 0
        """The status that patches, or creations, are refused with."""
        self.refuses_pods = False
        self.silent = False
        self._changes: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def respond(self, request: web.Request) -> web.StreamResponse:
        name = request.path.rsplit("/", 1)[-1]
        match request.method:
            case "GET" if "watch" in request.query:
                return await self._watch(request)
            case "GET" if name == "pods":
                return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})
            case "GET" if name in self.pods:
                return web.json_response(self.pods[name])
            case "POST":
                return await self._create(request)
            case "PATCH":
                return await self._patch(request, self.pods[name])
            case _:
                return web.json_response({})

    async def _create(self, request: web.Request) -> web.Response:
        if self.refuses_pods:
            return web.json_response({"code": 403, "reason": "Forbidden"}, status=403)
        body = await request.json()
        name = body["metadata"]["name"]
        self.pods[name] = {
            "metadata": {**body["metadata"], "uid": name, "resourceVersion": "2"},
            "status": READY,
        }
        self._changes.put_nowait(self.pods[name])
        return web.json_response(self.pods[name])

    async def _patch(self, request: web.Request, pod: dict[str, Any]) -> web.Response:
        if self.silent:
            await asyncio.Event().wait()
        if self.refusal:
            return web.json_response({"code": self.refusal, "reason": "x"}, status=self.refusal)
        labels = pod["metadata"]["labels"]
        if self.taken_by:
            labels.pop(WARM_LABEL)
            labels.update(self.taken_by)
            self.taken_by = {}
        operations = await request.json()
        self.patches.append(operations)
        if labels.get(WARM_LABEL) != WAITING:
            return web.json_response({"code": 422, "reason": "Invalid"}, status=422)
        labels.pop(WARM_LABEL)
        labels.update({_label(o["path"]): o["value"] for o in operations if o["op"] == "add"})
        if self.lose_responses and request.transport is not None:
            self.lose_responses -= 1
            request.transport.close()
        return web.json_response(pod)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            event = {"type": "MODIFIED", "object": await self._changes.get()}
            await response.write(json.dumps(event).encode() + b"\n")


def _label(path: str) -> str:
    return path.rpartition("/")[2].replace("~1", "/")


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
async def pool(
    connect: Connect, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[WarmPool]:
    async def open_session(pod: Pod, runtime: PodRuntime, *, workdir: str) -> Session:
        del runtime
        folder = tmp_path / pod.metadata.name
        folder.mkdir()
        opener = CutStreamOpener(folder)
        channel = await opener.start()
        trees = {"/": str(folder)}
        return await Session.open(channel, workdir=workdir, opener=opener, trees=trees)

    monkeypatch.setattr("swe_rollout.sandbox.pods.launch.open_session", open_session)
    monkeypatch.setattr(warm_pool, "POLL_S", 0.02)
    monkeypatch.setattr(warm_pool, "COOLDOWN_S", 0.2)
    client = await connect(server.respond)
    watch = PodWatch(client, namespace="default", selector=f"{RUN_LABEL}=run")
    await watch.start()
    names: set[str] = set()
    reaper = PodReaper(client, watch, namespace="default", selector="a=b", in_use=names)
    runtime = PodRuntime(client, watch, reaper, "default", names)
    spec = PodSandbox(warm=WarmPods(cap=2, expiry_seconds=60), start_seconds=5)
    pool = WarmPool(runtime, spec, job="job", owner=RunIdentity("run", "now"))
    yield pool
    await pool.aclose()
    await asyncio.gather(*(each.close() for each in list(runtime.running)))
    await reaper.aclose()
    await watch.aclose()


async def one_waits(pool: WarmPool) -> None:
    pool.prewarm([request()])
    await until(lambda: pool.ready == 1)


async def test_a_claim_whose_response_was_lost_is_recognised_as_our_own(
    pool: WarmPool, server: Server
) -> None:
    await one_waits(pool)
    server.lose_responses = 1
    pod = await pool.claim(request())
    assert pod is not None
    assert (await pod.exec("echo well")).stdout == b"well\n"
    assert len(server.patches) == 2
    await pod.close()


async def test_a_pod_that_waits_records_its_files_if_that_is_expected(pool: WarmPool) -> None:
    pool.prewarm([request(0, snapshots=True)])
    await until(lambda: pool.ready == 1)
    pod = await pool.claim(request(0, snapshots=True))
    assert pod is not None
    assert (await pod.changes()).number == 1
    await pod.close()


async def test_a_pod_that_another_claimer_has_labelled_is_not_handed_out(
    pool: WarmPool, server: Server
) -> None:
    await one_waits(pool)
    server.taken_by = episode_labels(request(7))
    assert await pool.claim(request()) is None
    assert pool.ready == 0


async def test_a_claim_without_a_response_does_not_delay_an_episode(
    pool: WarmPool, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    await one_waits(pool)
    monkeypatch.setattr(warm_pool, "CLAIM_S", 0.3)
    server.silent = True
    async with asyncio.timeout(PATIENCE_S):
        assert await pool.claim(request()) is None


async def test_where_pods_may_not_be_patched_no_more_are_prewarmed(
    pool: WarmPool, server: Server
) -> None:
    await one_waits(pool)
    server.refusal = 403
    assert await pool.claim(request()) is None
    made = len(server.pods)
    pool.prewarm([request(1), request(2)])
    await asyncio.sleep(0.5)  # more than a pause
    assert (len(server.pods), pool.ready) == (made, 0)


async def test_after_a_failed_start_the_pool_pauses_and_then_continues(
    pool: WarmPool, server: Server
) -> None:
    server.refuses_pods = True
    pool.prewarm([request()])
    await asyncio.sleep(0.1)
    server.refuses_pods = False
    assert pool.ready == 0
    await until(lambda: pool.ready == 1)


async def test_a_request_that_was_made_is_not_expected_again(
    pool: WarmPool, server: Server
) -> None:
    await one_waits(pool)
    pod = await pool.claim(request())
    assert pod is not None
    pool.prewarm([request(), request(role=Role.GRADER)])
    await until(lambda: pool.ready == 1)
    await asyncio.sleep(0.1)
    assert (pool.ready, len(server.pods)) == (1, 2)
    await pod.close()


async def test_a_request_that_moves_to_the_end_of_the_list_keeps_its_pod(
    pool: WarmPool, server: Server
) -> None:
    pool.prewarm([request(0), request(1)])
    await until(lambda: pool.ready == 2)
    pool.prewarm([request(2, image="image:2"), request(0), request(1)])
    await asyncio.sleep(0.2)
    assert (pool.ready, len(server.pods)) == (2, 2)


async def test_released_capacity_is_not_taken_back_for_a_while(
    pool: WarmPool, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    await one_waits(pool)
    monkeypatch.setattr(warm_pool, "COOLDOWN_S", 2.0)
    assert await pool.release_all()
    assert pool.ready == 0
    assert not await pool.release_all()
    assert len(server.pods) == 1
    await until(lambda: pool.ready == 1)


async def test_two_claims_in_one_process_never_get_one_pod(pool: WarmPool) -> None:
    await one_waits(pool)
    claimed = await asyncio.gather(*(pool.claim(request(sample)) for sample in range(3)))
    (pod,) = [each for each in claimed if each is not None]
    await pod.close()
