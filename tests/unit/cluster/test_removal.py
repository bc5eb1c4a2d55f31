"""Removal of all jobs of a cluster. With a real one: tests/cluster/test_uninstall.py."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

from swe_rollout.cluster import removal
from swe_rollout.errors import PrerequisiteError
from unit.conftest import Connect


class Cluster:
    """One job, which goes when it is deleted unless somebody holds it; and two policies."""

    def __init__(self, *, finalizers: tuple[str, ...] = (), is_installed: bool = True) -> None:
        job = {"name": "demo", "namespace": "team", "uid": "u1", "finalizers": list(finalizers)}
        self.jobs: list[dict[str, Any]] = [job]
        self.is_installed = is_installed
        self.deleted: list[str] = []

    async def respond(self, request: web.Request) -> web.Response:
        kind = request.path.rpartition("/")[2]
        if request.method == "DELETE":
            assert (await request.json())["preconditions"]["uid"]
            self.deleted.append(request.path.partition("/namespaces/")[2])
            if kind == "demo":
                self.jobs = [
                    {**job, "deletionTimestamp": "2026-01-01T00:00:00Z"}
                    for job in self.jobs
                    if job["finalizers"]
                ]
            return web.json_response({})
        if kind == "rolloutjobs" and not self.is_installed:
            return web.Response(status=404, text="404 page not found\n")
        policies = [{"name": "deny", "namespace": each, "uid": each} for each in ("team", "used")]
        busy = "role in (agent,grader)" in request.query.get("labelSelector", "")
        pods = [{"name": "p", "namespace": "used", "uid": "p"}] if busy else []
        found = {"rolloutjobs": self.jobs, "networkpolicies": policies, "pods": pods}[kind]
        return web.json_response({"items": [{"metadata": each} for each in found]})


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removal, "_POLL_S", 0.01)


async def test_jobs_go_then_the_policies_that_no_sandbox_needs(connect: Connect) -> None:
    cluster = Cluster()
    client = await connect(cluster.respond)
    notes: list[str] = []

    await removal.delete_jobs(client, timeout_s=60, on_note=notes.append)

    assert await removal.delete_policies(client) == ("team",)
    assert cluster.deleted == ["team/rolloutjobs/demo", "team/networkpolicies/deny"]
    assert notes == ["waiting until they are gone: 1 job, 0 pods"]


async def test_a_job_that_somebody_holds_is_asked_for_once_and_named(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each look at the clock is a second later.
    monkeypatch.setattr(removal, "time", SimpleNamespace(monotonic=count().__next__))
    cluster = Cluster(finalizers=("example.com/hold",))
    client = await connect(cluster.respond)

    with pytest.raises(PrerequisiteError) as stuck:
        await removal.delete_jobs(client, timeout_s=4, on_note=print)

    assert stuck.value.why == "rolloutjob team/demo (waits for example.com/hold)"
    assert cluster.deleted == ["team/rolloutjobs/demo"]


async def test_a_cluster_without_the_definition_has_no_jobs(connect: Connect) -> None:
    client = await connect(Cluster(is_installed=False).respond)

    await removal.delete_jobs(client, timeout_s=0.0, on_note=print)
