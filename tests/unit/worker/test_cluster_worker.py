"""A worker follows its job's object; what needs a cluster is in `tests/cluster/test_worker.py`."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest
from aiohttp import web

from kube_api import KubeApi, pod, refusal
from swe_rollout.cluster.client import ClusterClient
from swe_rollout.cluster.job_objects import ClusterJob
from swe_rollout.cluster.objects import OwnerReference
from swe_rollout.worker import cluster_worker
from swe_rollout.worker.cluster_worker import Lives, WorkerExit, WorkerIdentity, _Worker
from unit.cluster import job_server
from unit.conftest import Connect
from unit.store.records import job
from waits import PATIENCE_S


def worker(client: ClusterClient) -> _Worker:
    owner = OwnerReference(api_version="v1", kind="RolloutJob", name="demo", uid="u")
    found = ClusterJob(job(sandbox={"pod": {}}), owner)
    identity = WorkerIdentity("ns", "demo", index=0, count=1, pod="p")
    return _Worker(identity, found, client, None, Lives(None))


async def test_a_job_that_can_not_be_read_for_a_moment_is_followed_on(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a server that has just started: a worker that fails here would fail its whole job."""
    monkeypatch.setattr(cluster_worker, "LONGEST_PAUSE_S", 0.01)
    replaced = job_server.job("2", uid="another")
    answers = deque([refusal(403, "Forbidden"), refusal(401), web.Response(status=404), replaced])

    async def respond(_: web.Request) -> web.StreamResponse:
        found = answers.popleft()
        return found if isinstance(found, web.Response) else web.json_response(found)

    client = await connect(respond, retry_timeout_s=0.1)
    await asyncio.wait_for(worker(client)._follow(), PATIENCE_S)
    assert not answers


async def test_a_worker_that_has_finished_waits_until_it_can_say_so(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its successor would read all that it has read, to say the same."""
    monkeypatch.setattr(cluster_worker, "LAST_WRITE_S", 0.0)
    server = KubeApi(pods=[pod("p", namespace="ns")])
    finished = worker(await connect(server.respond))

    async def until_over(_: asyncio.Event) -> None:
        finished._finished = True

    monkeypatch.setattr(finished, "_until_over", until_over)
    assert await finished.run(asyncio.Event()) is WorkerExit.FINISHED
    assert len(server.called("PATCH")) == 1
