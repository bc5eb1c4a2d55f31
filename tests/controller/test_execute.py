"""Actions, carried out on clusters that differ. With a real one: tests/cluster/test_operator.py."""

from __future__ import annotations

import json

import pytest

from controller.builders import IMAGE, UID, job
from rollout_operator import actions, resources
from rollout_operator.execute import carry_out
from rollout_operator.kube import Kind, Kube
from rollout_operator.resources import Json
from swe_rollout.cluster.api_error import ApiError
from swe_rollout.cluster.objects import Status

_FIELD = "spec.template.spec.containers[0].restartPolicy"


class OldKube(Kube):
    """A cluster that knows no containers that restart by themselves."""

    def __init__(self, message: str) -> None:
        self.message = message
        self.created: list[Json] = []

    async def get(self, kind: Kind, namespace: str, name: str) -> bytes | None:  # noqa: ARG002
        return None

    async def create(self, kind: Kind, namespace: str, manifest: Json) -> bytes | None:  # noqa: ARG002
        if '"restartPolicyRules"' in json.dumps(manifest):
            raise ApiError("create", Status(code=422, reason="Invalid", message=self.message))
        self.created.append(manifest)
        head = {"name": "demo-workers", "ownerReferences": [{"uid": UID, "controller": True}]}
        return json.dumps({"metadata": head}).encode()


def creation() -> actions.CreateWorkers:
    mine = job()
    assert mine.spec is not None
    return actions.CreateWorkers(resources.worker_job(mine.metadata, mine.spec, image=IMAGE))


async def test_a_cluster_before_1_34_gets_workers_that_their_job_replaces() -> None:
    kube = OldKube(f'Job.batch "demo-workers" is invalid: {_FIELD}: Forbidden: may not be set')
    action = creation()

    await carry_out(action, job(), kube)

    assert kube.created == [resources.without_restarts(action.manifest)]


async def test_what_else_a_cluster_refuses_stays_refused() -> None:
    kube = OldKube("spec.template.spec.nodeSelector: Invalid value")

    with pytest.raises(ApiError, match="nodeSelector"):
        await carry_out(creation(), job(), kube)

    assert kube.created == []
