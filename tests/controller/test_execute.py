"""Actions, carried out on clusters that differ. With a real one: tests/cluster/test_operator.py."""

from __future__ import annotations

import json

import pytest
from aiohttp import web

from controller.builders import IMAGE, UID, job
from rollout_operator import actions, resources
from rollout_operator.execute import carry_out
from rollout_operator.kube import Kube
from rollout_operator.resources import Json
from swe_rollout.cluster.api_error import ApiError
from unit.conftest import Connect

_FIELD = "spec.template.spec.containers[0].restartPolicy"


class OldCluster:
    """A cluster that knows no containers that restart by themselves."""

    def __init__(self, message: str) -> None:
        self.message = message
        self.created: list[Json] = []

    async def respond(self, request: web.Request) -> web.Response:
        if request.method == "GET":
            return web.json_response({"code": 404, "reason": "NotFound"}, status=404)
        manifest = await request.json()
        if "restartPolicyRules" in json.dumps(manifest):
            refusal = {"code": 422, "reason": "Invalid", "message": self.message}
            return web.json_response(refusal, status=422)
        self.created.append(manifest)
        head = {"name": "demo-workers", "ownerReferences": [{"uid": UID, "controller": True}]}
        return web.json_response({"metadata": head})


def creation() -> actions.CreateWorkers:
    mine = job()
    assert mine.spec is not None
    return actions.CreateWorkers(
        resources.worker_job(mine.metadata, mine.spec, image=IMAGE, count=2)
    )


async def test_a_cluster_before_1_34_gets_workers_that_their_job_replaces(
    connect: Connect,
) -> None:
    old = OldCluster(f'Job.batch "demo-workers" is invalid: {_FIELD}: Forbidden: may not be set')
    action = creation()

    await carry_out(action, job(), Kube(await connect(old.respond)))

    assert old.created == [resources.without_restarts(action.manifest)]


async def test_what_else_a_cluster_refuses_stays_refused(connect: Connect) -> None:
    old = OldCluster("spec.template.spec.nodeSelector: Invalid value")

    with pytest.raises(ApiError, match="nodeSelector"):
        await carry_out(creation(), job(), Kube(await connect(old.respond)))

    assert old.created == []


async def test_sandboxes_are_deleted_page_by_page(connect: Connect) -> None:
    asked: list[str] = []

    async def respond(request: web.Request) -> web.Response:
        start = request.query.get("continue", "")
        asked.append(start or "first" if request.method == "GET" else request.path[-1])
        if request.method == "DELETE":
            return web.json_response({})
        if start == "expired":
            status = {"code": 410, "reason": "Expired", "metadata": {"continue": "newer"}}
            return web.json_response(status, status=410)
        following = {} if start else {"continue": "expired"}
        owners = {"ownerReferences": [{"uid": UID}]}
        heads = [{"name": name, "namespace": "default", **owners} for name in start[:1] or "ab"]
        heads.append({"name": "x", "namespace": "default"})
        items = [{"metadata": each} for each in heads]
        return web.json_response({"metadata": following, "items": items})

    await carry_out(actions.DeleteSandboxes(), job(), Kube(await connect(respond)))

    assert [*asked[:1], *sorted(asked[1:3]), *asked[3:]] == [
        *("first", "a", "b"),
        *("expired", "newer", "n"),
    ]
