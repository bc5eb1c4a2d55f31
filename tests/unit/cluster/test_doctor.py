"""Sandbox pods that nobody will delete any more: found by labels, owner and time. Issue 16, 7."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Self

import pytest
from aiohttp import web

from kube_api import KubeApi, pod, refusal
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


def server_of(*, jobs: list[str] | int, **pods: tuple[str, dict[str, Any]]) -> KubeApi:
    """Return a server with these pods, each of a job or of none; `jobs` may be a refusal."""
    found = [] if isinstance(jobs, int) else jobs
    made = []
    for name, (job, status) in pods.items():
        labels = {"app.kubernetes.io/managed-by": "swe-rollout", "swe-rollout.dev/role": "agent"}
        own = {"swe-rollout.dev/job-uid": job} if job else {}
        made.append({**pod(name, labels=labels | own, namespace="ns"), "status": status})
    server = KubeApi(rolloutjobs=[pod(uid, namespace="ns") for uid in found], pods=made)

    async def refused(request: web.Request) -> web.Response | None:
        is_asked = request.path.endswith("/rolloutjobs") and isinstance(jobs, int)
        return refusal(jobs) if is_asked and isinstance(jobs, int) else None

    server.hook = refused
    return server


async def removed(connect: Connect, server: KubeApi) -> list[str]:
    client = await connect(server.respond, retry_timeout_s=0.1)
    found = await doctor.find_left_pods(client, "ns")
    assert server.deleted == [], "finding changes nothing"
    await doctor.delete_left_pods(client, "ns")
    assert server.deleted == [pod.metadata.name for pod in found]
    return server.deleted


async def test_pods_of_jobs_that_are_gone_and_pods_that_have_ended_go(connect: Connect) -> None:
    server = server_of(
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
    server.pods()["going"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
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

    server = server_of(jobs=[], old=("", ended(9000)), new=("", ended(5)))
    for module in (doctor, transport):
        monkeypatch.setattr(module, "datetime", Clock)

    assert await removed(connect, server) == ["old"]


async def test_without_the_kind_there_is_no_job(connect: Connect) -> None:
    server = server_of(jobs=404, gone=("gone", RUNNING), running=("", RUNNING))
    assert await removed(connect, server) == ["gone"]


@pytest.mark.parametrize("code", [403, 422])
async def test_jobs_that_can_not_be_listed_protect_every_pod(connect: Connect, code: int) -> None:
    server = server_of(jobs=code, gone=("gone", RUNNING), old=("", ended(9000)))
    client = await connect(server.respond, retry_timeout_s=0.1)
    with pytest.raises(SweRolloutError):
        await doctor.delete_left_pods(client, "ns")
    assert server.deleted == []


async def test_a_pod_that_is_gone_meanwhile_is_no_error(connect: Connect) -> None:
    server = server_of(jobs=[], gone=("gone", RUNNING))

    async def lost(request: web.Request) -> None:
        if request.method == "DELETE":
            server.objects.clear()

    server.hook = lost
    client = await connect(server.respond)
    assert [pod.metadata.name for pod in await doctor.delete_left_pods(client, "ns")] == ["gone"]


async def test_a_deletion_that_is_refused_says_so(connect: Connect) -> None:
    server = server_of(jobs=[], gone=("gone", RUNNING))

    async def refusing(request: web.Request) -> web.Response | None:
        return refusal(403, "Forbidden") if request.method == "DELETE" else None

    server.hook = refusing
    client = await connect(server.respond)
    with pytest.raises(ClusterError):
        await doctor.delete_left_pods(client, "ns")
