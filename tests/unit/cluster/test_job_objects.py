"""Reading a job from the API server, as its worker does."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from swe_rollout.cluster.api_error import ApiError
from swe_rollout.cluster.job_objects import read_cluster_job
from swe_rollout.errors import PrerequisiteError, SpecError
from swe_rollout.spec.job import RolloutJob
from swe_rollout.worker.startup import on_cluster
from unit.conftest import Connect

SPEC: dict[str, Any] = {
    "dataset": {"releasePairs": {}},
    "policy": {"scripted": {}},
    "sandbox": {"pod": {}},
    "store": {"uri": "s3://rollouts"},
}


def stored(**spec: object) -> dict[str, Any]:
    """The stored object, with the fields that servers and tools add."""
    return {
        "apiVersion": "swe-rollout.dev/v1alpha1",
        "kind": "RolloutJob",
        "metadata": {
            "name": "nightly",
            "namespace": "rl",
            "uid": "u1",
            "resourceVersion": "7",
            "labels": {"team": "rl"},
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
            "managedFields": [{"manager": "kubectl"}],
        },
        "spec": {**SPEC, **spec},
        "status": {"state": "Running"},
    }


async def read(connect: Connect, body: object, *, status: int = 200) -> Any:
    paths: list[str] = []

    async def respond(request: web.Request) -> web.Response:
        paths.append(request.path)
        return web.json_response(body, status=status)

    found = await read_cluster_job(await connect(respond), "rl", "nightly")
    assert paths == ["/apis/swe-rollout.dev/v1alpha1/namespaces/rl/rolloutjobs/nightly"]
    return found


async def test_a_job_is_read_with_its_owner(connect: Connect) -> None:
    found = await read(connect, stored(samples=4))
    assert found.job.spec.samples == 4
    assert found.job.metadata.labels == {"team": "rl"}
    assert found.job.metadata.annotations == {}
    assert (found.owner.kind, found.owner.name, found.owner.uid) == ("RolloutJob", "nightly", "u1")


async def test_an_invalid_spec_is_reported_with_its_fields(connect: Connect) -> None:
    with pytest.raises(SpecError, match="rolloutjob/nightly") as caught:
        await read(connect, stored(samples=0, policy={}))
    fields = {problem.field for problem in caught.value.problems}
    assert fields == {"spec.samples", "spec.policy"}


async def test_a_missing_job_is_reported(connect: Connect) -> None:
    missing = {"kind": "Status", "reason": "NotFound", "message": "not found", "code": 404}
    with pytest.raises(ApiError, match="nightly in rl"):
        await read(connect, missing, status=404)


async def job(connect: Connect, **spec: object) -> RolloutJob:
    found = await read(connect, stored(**spec))
    read_job: RolloutJob = found.job
    return read_job


async def test_sandboxes_are_put_into_the_jobs_namespace(connect: Connect) -> None:
    pod = on_cluster(await job(connect), "rl").spec.sandbox.pod
    assert pod is not None
    assert pod.namespace == "rl"


@pytest.mark.parametrize(
    ("sandbox", "part"),
    [({"local": {}}, "pod: {}"), ({"pod": {"namespace": "other"}}, "remove the field")],
)
async def test_sandboxes_elsewhere_are_refused(
    connect: Connect, sandbox: dict[str, Any], part: str
) -> None:
    with pytest.raises(PrerequisiteError) as caught:
        on_cluster(await job(connect, sandbox=sandbox), "rl")
    assert part in caught.value.fix
