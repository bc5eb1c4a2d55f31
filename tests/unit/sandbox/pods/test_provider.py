"""A provider's requests to the API server, beyond those of a single pod."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from kube_api import refusal
from swe_rollout.cluster.client import ClusterClient
from swe_rollout.errors import PrerequisiteError
from swe_rollout.sandbox.pods.provider import PodProvider
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
