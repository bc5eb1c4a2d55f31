"""A provider's requests to the API server, beyond those of a single pod."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from kube_api import KubeApi, pod, refusal
from swe_rollout.cluster.client import ClusterClient
from swe_rollout.cluster.watch import PodWatch
from swe_rollout.errors import PrerequisiteError
from swe_rollout.sandbox.pods.pod_spec import EPISODE_LABEL, JOB_LABEL, RUN_LABEL
from swe_rollout.sandbox.pods.provider import PodProvider
from swe_rollout.sandbox.pods.reaper import PodReaper
from swe_rollout.sandbox.pods.warm_spec import WARM_LABEL
from swe_rollout.spec.pod_template import PodTemplate
from swe_rollout.spec.sandbox import PodSandbox
from swe_rollout.types.episode import EpisodeId
from unit.conftest import Connect
from unit.sandbox.pods.conftest import REQUEST, PodServer


async def test_a_template_is_tried_once_whatever_starts_at_the_same_time(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []
    server = PodServer([])

    async def respond(request: web.Request) -> web.StreamResponse:
        if "dryRun" in request.query:
            tried.append(request.path)
            return web.json_response(await request.json())
        if request.method == "POST" and request.path.endswith("/pods"):
            return refusal(422, "Invalid", "no further than here")
        return await server.respond(request)

    async def connected(context: str | None) -> Any:
        del context
        return await connect(respond)

    monkeypatch.setattr(ClusterClient, "connect", connected)
    template = PodTemplate.model_validate({"spec": {"nodeSelector": {"pool": "sandboxes"}}})
    pods = PodProvider(PodSandbox(namespace="default", template=template), job="job")
    requests = [replace(REQUEST, episode=EpisodeId("job", "one", n)) for n in range(20)]
    ended = await asyncio.gather(*(pods.start(each) for each in requests), return_exceptions=True)
    await pods.aclose()
    assert all("no further than here" in str(error) for error in ended), ended
    assert not any(isinstance(error, PrerequisiteError) for error in ended)
    assert tried == ["/api/v1/namespaces/default/pods"]


@pytest.mark.parametrize("ours", [0, 1, 2, 100])
async def test_the_orphans_of_few_episodes_are_selected_by_the_server(
    ours: int, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    episodes = [EpisodeId("job", "one", n) for n in range(100)]
    of_job = {JOB_LABEL: "job", RUN_LABEL: "r0"}
    left = [
        pod(f"left-{n}", "Running", labels=of_job | {EPISODE_LABEL: episode.digest})
        for n, episode in enumerate(episodes)
    ]
    warm_pod = pod("warm", "Failed", labels=of_job | {WARM_LABEL: "waiting"})
    warm_pod["status"]["reason"] = "DeadlineExceeded"
    server, seen = KubeApi(pods=[*left, warm_pod]), list[str]()
    server.page = 30

    async def respond(request: web.Request) -> web.StreamResponse:
        response = await server.respond(request)
        is_list = request.method == "GET" and "watch" not in request.query
        if is_list and JOB_LABEL in request.query.get("labelSelector", ""):
            assert isinstance(response, web.Response)
            found = json.loads(response.text or "")["items"]
            assert len(found) <= server.page
            seen.extend(each["metadata"]["name"] for each in found)
        return response

    async def connected(context: str | None) -> Any:
        del context
        return await connect(respond)

    monkeypatch.setattr(ClusterClient, "connect", connected)
    pods = PodProvider(PodSandbox(namespace="default"), job="job")
    await pods.delete_orphans(episodes[:ours])
    assert sorted(server.deleted) == sorted(["warm", *(f"left-{n}" for n in range(ours))])
    assert sorted(seen) == sorted(server.deleted), "no other pod was read"
    await pods.aclose()


@pytest.mark.parametrize("closing", [PodReaper, PodWatch, None])
async def test_an_end_that_is_cancelled_closes_every_connection(
    closing: type[PodReaper | PodWatch] | None, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await connect(KubeApi().respond)

    async def connected(context: str | None) -> ClusterClient:
        del context
        return client

    monkeypatch.setattr(ClusterClient, "connect", connected)
    pods = PodProvider(PodSandbox(namespace="default"), job="job")
    await pods.delete_orphans([])
    if closing is not None:
        close = closing.aclose

        async def cancelled(this: Any) -> None:
            ending.cancel()
            await close(this)

        monkeypatch.setattr(closing, "aclose", cancelled)
    ending = asyncio.create_task(pods.aclose())
    await asyncio.gather(ending, return_exceptions=True)
    assert ending.cancelled() == (closing is not None)
    assert client.transport._session is None
    left = {task.get_name() for task in asyncio.all_tasks()}
    assert not left & {"pod-watch", "pod-reaper"}
