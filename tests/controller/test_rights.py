"""The rights of operator and workers: enough for every request that they make, and no more.

Each request of the operator and of a worker is made of a server that has the roles of `swe-rollout
install`. A right that no request needs fails as well as a missing one. On a real cluster, operator
and workers run with these roles alone: tests/cluster/test_rolloutjob.py, test_tenancy.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from controller.builders import NOW, UID, job
from rbac import RbacServer, Right, asked, granted
from rollout_operator import actions, resources
from rollout_operator.execute import carry_out, ensure_policy, release_policy
from rollout_operator.kube import Kind, Kube
from swe_rollout.cluster.api_error import ApiError
from swe_rollout.cluster.client import ClusterClient
from swe_rollout.cluster.exec import ExecTarget, open_exec
from swe_rollout.cluster.job_objects import read_cluster_job
from swe_rollout.cluster.jobs import Jobs
from swe_rollout.cluster.manifests import ObjectMeta, TemplatedPod
from swe_rollout.cluster.watch import PodWatch
from swe_rollout.errors import SweRolloutError
from unit.conftest import access
from waits import PATIENCE_S

pytestmark = pytest.mark.threat(point=32)

Serve = Callable[[RbacServer], Awaitable[ClusterClient]]
OPERATOR = "swe-rollout-operator"
WORKER = "swe-rollout-worker"
ROLLOUT = "swe-rollout.dev"
PODS = "/api/v1/namespaces/team/pods"
RBAC = "rbac.authorization.k8s.io"

OF_KOPF = {
    *(Right(verb, "rolloutjobs", ROLLOUT) for verb in ("list", "watch")),
    *(Right(verb, "jobs", "batch") for verb in ("list", "watch")),
    Right("watch", "pods"),
    *(
        Right(verb, "customresourcedefinitions", "apiextensions.k8s.io")
        for verb in ("list", "watch")
    ),
    *(Right(verb, "namespaces") for verb in ("list", "watch")),
}
"""The requests of the library that watches for us."""
OF_ADMISSION = {
    # With OwnerReferencesPermissionEnforcement, for `blockOwnerDeletion`.
    Right("update", "rolloutjobs/finalizers", ROLLOUT),
    # To create a RoleBinding without the rights of its role.
    Right("bind", "clusterroles", RBAC, "swe-rollout-worker"),
}
"""Rights that the API server asks for while it handles another request."""


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    servers: list[TestServer] = []
    clients: list[ClusterClient] = []

    async def make(rbac: RbacServer) -> ClusterClient:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", rbac.respond)
        server = TestServer(app)
        await server.start_server()
        servers.append(server)
        client = ClusterClient(access(str(server.make_url("")).rstrip("/")), retry_timeout_s=5)
        clients.append(client)
        return client

    yield make
    for client in clients:
        await client.aclose()
    for server in servers:
        await server.close()


def every_action() -> list[actions.Action]:
    """Build one action of each kind."""
    mine = job()
    assert mine.spec is not None
    manifest = resources.worker_job(mine.metadata, mine.spec, image="worker")
    made: list[actions.Action] = [
        actions.ApplyPrerequisites(),
        actions.CreateWorkers(manifest),
        actions.AdjustWorkers("uid-of-workers", suspend=True, deadline_seconds=None),
        actions.DeleteSandboxes(),
        actions.DeleteWorkerPod("demo-workers-0", "w"),
        actions.DeleteWorkers("uid-of-workers"),
        actions.RecordEvent(actions.EventType.NORMAL, "Started", "text", NOW),
        actions.DeleteJob(),
    ]
    assert {type(each) for each in made} == set(actions.Action.__args__)
    return made


@pytest.mark.threat(point=31)
async def test_the_operator_needs_all_of_its_rights_and_no_other(serve: Serve) -> None:
    server = RbacServer(OPERATOR)
    kube = Kube((await serve(server)).transport)
    mine = job()
    owner = {"kind": "RolloutJob", "apiVersion": ROLLOUT, "name": "demo", "uid": UID}
    sandbox = {"name": "demo-1", "namespace": "team", "uid": "u", "ownerReferences": [owner]}
    server.objects[f"{PODS}/demo-1"] = {"metadata": sandbox, "spec": {}, "status": {}}
    worker = {"name": "demo-workers-0", "namespace": "team", "uid": "w"}
    server.objects[f"{PODS}/demo-workers-0"] = {"metadata": worker, "spec": {}, "status": {}}

    for action in every_action():
        await carry_out(action, mine, kube)
    policy = Kind.NETWORK_POLICY.path("team", resources.POLICY_NAME)
    server.objects[policy]["spec"] = {"podSelector": {}}
    await ensure_policy("team", kube)  # repaired
    await kube.worker_job("team", "demo")
    await kube.worker_pods("team", "demo")
    await kube.refusal("team", "u", since=NOW)
    await kube.write_status(mine.metadata, mine.status, before=mine.status)
    assert await release_policy("team", kube)

    assert server.refused == []
    gone = {policy, f"{PODS}/demo-1", f"{PODS}/demo-workers-0"}
    assert server.objects.keys() & gone == set()
    assert granted(OPERATOR) - server.used - OF_ADMISSION == OF_KOPF - server.used


@pytest.mark.threat(point=31)
async def test_a_worker_needs_all_of_its_rights_and_no_other(serve: Serve) -> None:
    server = RbacServer(WORKER)
    client = await serve(server)
    jobs = f"/apis/{ROLLOUT}/v1alpha1/namespaces/team/rolloutjobs"
    server.objects[f"{jobs}/demo"] = {
        "metadata": {"name": "demo", "namespace": "team", "uid": UID, "resourceVersion": "1"},
        "spec": {"store": {"uri": "s3://rollouts"}},
    }

    with pytest.raises(SweRolloutError):  # the spec of this one is not complete
        await read_cluster_job(client, "team", "demo")
    async with (
        asyncio.timeout(PATIENCE_S),
        aclosing(Jobs(client).follow("team", "demo")) as changes,
    ):
        await anext(changes)
        following = asyncio.ensure_future(anext(changes))
        await server.until_used(Right("watch", "rolloutjobs", ROLLOUT))
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    metadata = ObjectMeta(name="demo-1", labels={})
    await client.create_pod("team", TemplatedPod(metadata=metadata, spec={}))
    watch = PodWatch(client, namespace="team", selector="a=b")
    await watch.start()  # lists
    async with asyncio.timeout(PATIENCE_S):
        await server.until_used(Right("watch", "pods"))
    await watch.aclose()
    await client.annotate_pod("team", "demo-1", {"swe-rollout.dev/progress": "{}"})
    await client.patch_pod("team", "demo-1", [])
    await client.get_pod("team", "demo-1")
    await client.pod_events("team", "u")
    with pytest.raises(ApiError):  # allowed, and not there
        await client.get_network_policy("team", resources.POLICY_NAME)
    with pytest.raises(ApiError):  # allowed, and no WebSocket
        await open_exec(client, ExecTarget("team", "demo-1", "sandbox"), ["true"])
    await client.delete_pods("team", labels="a=b")
    await client.delete_pod("team", "demo-1", uid="u")

    assert server.refused == []
    # WebSockets are GET requests, for which newer API servers ask for `create` as well.
    assert granted(WORKER) - server.used == {Right("create", "pods/exec")}


def test_requests_are_read_as_the_api_server_reads_them() -> None:
    assert asked("GET", PODS, watch=False) == Right("list", "pods")
    assert asked("GET", PODS, watch=True) == Right("watch", "pods")
    assert asked("DELETE", PODS, watch=False) == Right("deletecollection", "pods")
    assert asked("GET", f"{PODS}/a/exec", watch=False) == Right("get", "pods/exec", "", "a")
    assert asked("GET", "/api/v1/namespaces/team", watch=False) == (
        Right("get", "namespaces", "", "team")
    )
    status = f"/apis/{ROLLOUT}/v1alpha1/namespaces/t/rolloutjobs/j/status"
    assert asked("PATCH", status, watch=False) == Right("patch", "rolloutjobs/status", ROLLOUT, "j")


@pytest.mark.parametrize("role", [OPERATOR, WORKER])
async def test_what_a_role_lacks_is_refused(role: str, serve: Serve) -> None:
    server = RbacServer(role)
    client = await serve(server)

    for path in ("/api/v1/namespaces/team/secrets/s", "/api/v1/nodes", f"{PODS}/a/log"):
        with pytest.raises(ApiError) as refused:
            await client.transport.request("GET", path, doing="look around")
        assert refused.value.forbidden
    assert server.used == set()
