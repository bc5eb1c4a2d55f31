"""Sandbox pods that nobody will delete any more: found by labels, owner and time. Issue 16, 7."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Self

import pytest
from aiohttp import web

from swe_rollout.cluster import doctor, transport
from swe_rollout.errors import ClusterError, SweRolloutError
from unit.conftest import Connect


def ended(ago_s: float) -> dict[str, Any]:
    at = (datetime.now(UTC) - timedelta(seconds=ago_s)).isoformat(timespec="seconds")
    state = {"terminated": {"exitCode": 0, "finishedAt": at.replace("+00:00", "Z")}}
    return {"phase": "Succeeded", "containerStatuses": [{"name": "sandbox", "state": state}]}


RUNNING: dict[str, Any] = {
    "phase": "Running",
    "containerStatuses": [{"name": "sandbox", "state": {"running": {}}}],
}
UNCLEAR: dict[str, Any] = {
    "phase": "Failed",
    "containerStatuses": [{"name": "sandbox", "state": {"terminated": {"finishedAt": "soon"}}}],
}
LOST_SIGHT_OF: dict[str, Any] = {
    "phase": "Failed",
    "containerStatuses": [
        {"name": "sandbox", "state": {"terminated": {"startedAt": None, "finishedAt": None}}}
    ],
}
"""As the kubelet reports a container of which it does not know any more: ContainerStatusUnknown."""


class Server:
    """An API server with these pods and jobs."""

    def __init__(self, *, jobs: list[str] | int, **pods: tuple[str, dict[str, Any]]) -> None:
        self.jobs = jobs
        self.pods = pods
        self.deleted: list[str] = []
        self.deleting: set[str] = set()

    async def respond(self, request: web.Request) -> web.Response:
        if request.method == "DELETE":
            assert (await request.json())["preconditions"]["uid"]
            self.deleted.append(request.path.rpartition("/")[2])
            return web.json_response({})
        if request.path.endswith("/rolloutjobs"):
            if isinstance(self.jobs, int):
                return web.json_response({"code": self.jobs}, status=self.jobs)
            items = [{"metadata": {"name": uid, "uid": uid}} for uid in self.jobs]
            return web.json_response({"items": items})
        assert "swe-rollout.dev/role in (agent,grader)" in request.query["labelSelector"]
        return web.json_response({"items": [self._pod(name) for name in self.pods]})

    def _pod(self, name: str) -> dict[str, Any]:
        job, status = self.pods[name]
        labels = {"swe-rollout.dev/job-uid": job} if job else {}
        metadata: dict[str, Any] = {"name": name, "uid": f"uid-{name}", "labels": labels}
        if name in self.deleting:
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        return {"metadata": metadata, "status": status}


async def removed(connect: Connect, server: Server) -> list[str]:
    client = await connect(server.respond, retry_timeout_s=0.1)
    found = await doctor.find_left_pods(client, "ns")
    assert server.deleted == [], "finding changes nothing"
    await doctor.delete_left_pods(client, "ns")
    assert server.deleted == [pod.metadata.name for pod in found]
    return server.deleted


async def test_pods_of_jobs_that_are_gone_and_pods_that_have_ended_go(connect: Connect) -> None:
    server = Server(
        jobs=["living"],
        gone=("gone", RUNNING),
        kept=("living", RUNNING),
        kept_ended=("living", ended(9000)),
        run_ended=("", ended(9000)),
        run_just_ended=("", ended(5)),
        run_running=("", RUNNING),
        run_unclear=("", UNCLEAR),
        run_unknown=("", LOST_SIGHT_OF),
        run_pending=("", {"phase": "Pending"}),
        going=("gone", RUNNING),
    )
    server.deleting.add("going")
    assert await removed(connect, server) == ["gone", "run_ended"]


@pytest.mark.parametrize("off", [timedelta(days=1), timedelta(days=-1)])
async def test_how_long_ago_a_pod_ended_is_told_by_the_cluster_s_clock(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, off: timedelta
) -> None:
    """A living process is about to delete the one that has just ended."""

    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return super().now(tz) + off

    server = Server(jobs=[], old=("", ended(9000)), new=("", ended(5)))
    for module in (doctor, transport):
        monkeypatch.setattr(module, "datetime", Clock)

    assert await removed(connect, server) == ["old"]


async def test_without_the_kind_there_is_no_job(connect: Connect) -> None:
    server = Server(jobs=404, gone=("gone", RUNNING), running=("", RUNNING))
    assert await removed(connect, server) == ["gone"]


@pytest.mark.parametrize("code", [403, 422])
async def test_jobs_that_can_not_be_listed_protect_every_pod(connect: Connect, code: int) -> None:
    server = Server(jobs=code, gone=("gone", RUNNING), old=("", ended(9000)))
    client = await connect(server.respond, retry_timeout_s=0.1)
    with pytest.raises(SweRolloutError):
        await doctor.delete_left_pods(client, "ns")
    assert server.deleted == []


async def test_a_pod_that_is_gone_meanwhile_is_no_error(connect: Connect) -> None:
    server = Server(jobs=[], gone=("gone", RUNNING))
    respond = server.respond

    async def lost(request: web.Request) -> web.Response:
        if request.method == "DELETE":
            return web.json_response({"code": 404, "reason": "NotFound"}, status=404)
        return await respond(request)

    client = await connect(lost)
    assert [pod.metadata.name for pod in await doctor.delete_left_pods(client, "ns")] == ["gone"]


async def test_a_deletion_that_is_refused_says_so(connect: Connect) -> None:
    server = Server(jobs=[], gone=("gone", RUNNING))
    respond = server.respond

    async def refusing(request: web.Request) -> web.Response:
        if request.method == "DELETE":
            return web.json_response({"code": 403, "reason": "Forbidden"}, status=403)
        return await respond(request)

    client = await connect(refusing)
    with pytest.raises(ClusterError):
        await doctor.delete_left_pods(client, "ns")
