"""The rights of operator and workers: enough for every request that they make, and no more.

Each request of the operator and of a worker is made of a server that has the roles of `swe-rollout
install`. A right that no request needs fails as well as a missing one. On a real cluster, operator
and workers run with these roles alone: tests/cluster/test_rolloutjob.py, test_tenancy.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import pytest

from controller.builders import NOW, UID, job
from rbac import RbacServer, Right, asked, granted
from rollout_operator import actions, resources
from rollout_operator.execute import carry_out, ensure_policy, release_policy
from rollout_operator.kube import Kube
from swe_rollout.cluster.api_error import ApiError
from swe_rollout.cluster.client import ClusterClient
from swe_rollout.cluster.exec import ExecTarget, open_exec
from swe_rollout.cluster.job_objects import read_cluster_job
from swe_rollout.cluster.jobs import Jobs
from swe_rollout.cluster.objects import NETWORK_POLICIES, PODS
from swe_rollout.cluster.watch import PodWatch
from swe_rollout.errors import SweRolloutError
from unit.conftest import Connect
from waits import PATIENCE_S

pytestmark = pytest.mark.threat(point=32)

Serve = Callable[[RbacServer], Awaitable[ClusterClient]]
OPERATOR = "swe-rollout-operator"
WORKER = "swe-rollout-worker"
ROLLOUT = "swe-rollout.dev"
POD_PATH = PODS.path("team")
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
def serve(connect: Connect) -> Serve:
    return lambda rbac: connect(rbac.respond)


def every_action() -> list[actions.Action]:
    """Build one action of each kind."""
    mine = job()
    assert mine.spec is not None
    manifest = resources.worker_job(mine.metadata, mine.spec, image="worker", count=2)
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
    kube = Kube(await serve(server))
    mine = job()
    owner = {"kind": "RolloutJob", "apiVersion": ROLLOUT, "name": "demo", "uid": UID}
    sandbox = {"name": "demo-1", "namespace": "team", "uid": "u", "ownerReferences": [owner]}
    labels = {"swe-rollout.dev/job": "demo", "swe-rollout.dev/role": "agent"}
    server.objects["pods", "team", "demo-1"] = {
        "metadata": {**sandbox, "labels": labels},
        "spec": {},
        "status": {},
    }
    worker = {"name": "demo-workers-0", "namespace": "team", "uid": "w"}
    server.objects["pods", "team", "demo-workers-0"] = {
        "metadata": worker,
        "spec": {},
        "status": {},
    }

    for action in every_action():
        await carry_out(action, mine, kube)
    policy = ("networkpolicies", "team", resources.POLICY_NAME)
    server.objects[policy]["spec"] = {"podSelector": {}}
    await ensure_policy("team", kube)  # repaired
    await kube.worker_job("team", "demo")
    await kube.worker_pods("team", "demo")
    await kube.refusal("team", "u", since=NOW)
    await kube.write_status(mine.metadata, mine.status, before=mine.status)
    assert await release_policy("team", kube)

    assert server.refused == []
    gone = {policy, ("pods", "team", "demo-1"), ("pods", "team", "demo-workers-0")}
    assert server.objects.keys() & gone == set()
    assert granted(OPERATOR) - server.used - OF_ADMISSION == OF_KOPF - server.used


@pytest.mark.threat(point=31)
async def test_a_worker_needs_all_of_its_rights_and_no_other(serve: Serve) -> None:
    server = RbacServer(WORKER)
    client = await serve(server)
    server.objects["rolloutjobs", "team", "demo"] = {
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
    await client.create(PODS, "team", {"metadata": {"name": "demo-1", "labels": {}}, "spec": {}})
    watch = PodWatch(client, namespace="team", selector="a=b")
    await watch.start()  # lists
    async with asyncio.timeout(PATIENCE_S):
        await server.until_used(Right("watch", "pods"))
    await watch.aclose()
    progress = {"metadata": {"annotations": {"swe-rollout.dev/progress": "{}"}}}
    await client.merge(PODS, "team", "demo-1", progress)
    await client.patch(PODS, "team", "demo-1", [])
    await client.get(PODS, "team", "demo-1")
    await client.pod_events("team", "u")
    with pytest.raises(ApiError):  # allowed, and not there
        await client.get(NETWORK_POLICIES, "team", resources.POLICY_NAME)
    with pytest.raises(ApiError):  # allowed, and no WebSocket
        await open_exec(client, ExecTarget("team", "demo-1", "sandbox"), ["true"])
    await client.delete_all(PODS, "team", labels="a=b", grace_s=1)
    await client.delete(PODS, "team", "demo-1", uid="u", grace_s=1)

    assert server.refused == []
    # WebSockets are GET requests, for which newer API servers ask for `create` as well.
    assert granted(WORKER) - server.used == {Right("create", "pods/exec")}


def test_requests_are_read_as_the_api_server_reads_them() -> None:
    assert asked("GET", POD_PATH, watch=False) == Right("list", "pods")
    assert asked("GET", POD_PATH, watch=True) == Right("watch", "pods")
    assert asked("DELETE", POD_PATH, watch=False) == Right("deletecollection", "pods")
    assert asked("GET", f"{POD_PATH}/a/exec", watch=False) == Right("get", "pods/exec", "", "a")
    assert asked("GET", "/api/v1/namespaces/team", watch=False) == (
        Right("get", "namespaces", "", "team")
    )
    status = f"/apis/{ROLLOUT}/v1alpha1/namespaces/t/rolloutjobs/j/status"
    assert asked("PATCH", status, watch=False) == Right("patch", "rolloutjobs/status", ROLLOUT, "j")


@pytest.mark.parametrize("role", [OPERATOR, WORKER])
async def test_what_a_role_lacks_is_refused(role: str, serve: Serve) -> None:
    server = RbacServer(role)
    client = await serve(server)

    for path in ("/api/v1/namespaces/team/secrets/s", "/api/v1/nodes", f"{POD_PATH}/a/log"):
        with pytest.raises(ApiError) as refused:
            await client.transport.request("GET", path, doing="look around")
        assert refused.value.forbidden
    assert server.used == set()
