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
