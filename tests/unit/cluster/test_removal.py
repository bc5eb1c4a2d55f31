"""Removal of all jobs of a cluster. With a real one: tests/cluster/test_uninstall.py."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace

import pytest
from aiohttp import web

from kube_api import KubeApi, pod
from swe_rollout.cluster import removal
from swe_rollout.errors import PrerequisiteError
from unit.conftest import Connect


def cluster_of(*, finalizers: tuple[str, ...] = ()) -> KubeApi:
    """Return a server with one job, which somebody may hold, two policies, and a sandbox."""
    ours = {
        "app.kubernetes.io/managed-by": "swe-rollout",
        "app.kubernetes.io/component": "operator",
    }
    return KubeApi(
        rolloutjobs=[pod("demo", namespace="team", finalizers=list(finalizers))],
        networkpolicies=[pod("deny", namespace=each, labels=ours) for each in ("team", "used")],
        pods=[pod("p", namespace="used", labels={"swe-rollout.dev/role": "agent"})],
    )


def deleted(cluster: KubeApi) -> list[str]:
    return [f"{each.namespace}/{each.kind}/{each.name}" for each in cluster.called("DELETE")]


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removal, "_POLL_S", 0.01)


async def test_jobs_go_then_the_policies_that_no_sandbox_needs(connect: Connect) -> None:
    cluster = cluster_of()
    client = await connect(cluster.respond)
    notes: list[str] = []

    await removal.delete_jobs(client, timeout_s=60, on_note=notes.append)

    assert await removal.delete_policies(client) == ("team",)
    assert deleted(cluster) == ["team/rolloutjobs/demo", "team/networkpolicies/deny"]
    assert notes == ["waiting until they are gone: 1 job, 0 pods"]


async def test_a_job_that_somebody_holds_is_asked_for_once_and_named(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each look at the clock is a second later.
    monkeypatch.setattr(removal, "time", SimpleNamespace(monotonic=count().__next__))
    cluster = cluster_of(finalizers=("example.com/hold",))
    client = await connect(cluster.respond)

    with pytest.raises(PrerequisiteError) as stuck:
        await removal.delete_jobs(client, timeout_s=4, on_note=print)

    assert stuck.value.why == "rolloutjob team/demo (waits for example.com/hold)"
    assert deleted(cluster) == ["team/rolloutjobs/demo"]


async def test_a_cluster_without_the_definition_has_no_jobs(connect: Connect) -> None:
    cluster = KubeApi()

    async def unknown(request: web.Request) -> web.Response | None:
        is_asked = request.path.endswith("/rolloutjobs")
        return web.Response(status=404, text="404 page not found\n") if is_asked else None

    cluster.hook = unknown
    client = await connect(cluster.respond)

    await removal.delete_jobs(client, timeout_s=0.0, on_note=print)
