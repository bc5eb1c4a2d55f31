"""Installation: an older version is not installed over jobs that a newer one has stored.

The rest needs a cluster: `tests/cluster/test_crd.py`.
"""

from __future__ import annotations

import pytest
from aiohttp import web

from swe_rollout.cluster.installation import Installation
from swe_rollout.errors import PrerequisiteError, SweRolloutError
from unit.conftest import Connect, Handler

CRD = "rolloutjobs.swe-rollout.dev"


def definition(*stored: str) -> Handler:
    async def respond(request: web.Request) -> web.StreamResponse:
        assert request.path.endswith(f"/customresourcedefinitions/{CRD}")
        metadata = {"name": CRD, "uid": "u", "resourceVersion": "1"}
        status = {"storedVersions": list(stored)} if stored else {}
        return web.json_response({"metadata": metadata, "status": status})

    return respond


def refusal(code: int, reason: str) -> Handler:
    async def respond(_: web.Request) -> web.StreamResponse:
        body = {"kind": "Status", "code": code, "reason": reason, "message": reason}
        return web.json_response(body, status=code)

    return respond


@pytest.mark.parametrize(
    ("stored", "known"),
    [
        ((), {"v1alpha1"}),
        (("v1alpha1",), {"v1alpha1"}),
        (("v1alpha1",), {"v1alpha1", "v1beta1"}),
        (("v1alpha1", "v1beta1"), {"v1alpha1", "v1beta1"}),
    ],
)
async def test_versions_that_are_known_may_be_stored(
    connect: Connect, stored: tuple[str, ...], known: set[str]
) -> None:
    installation = Installation(await connect(definition(*stored)))

    await installation.check_stored_versions(CRD, known)


async def test_a_cluster_without_the_definition_has_nothing_stored(connect: Connect) -> None:
    installation = Installation(await connect(refusal(404, "NotFound")))

    await installation.check_stored_versions(CRD, {"v1alpha1"})


async def test_a_newer_version_is_named_with_the_cure(connect: Connect) -> None:
    installation = Installation(await connect(definition("v1alpha1", "v1beta1")))

    with pytest.raises(PrerequisiteError) as refused:
        await installation.check_stored_versions(CRD, {"v1alpha1"})

    assert refused.value.what == "jobs of this cluster are stored as v1beta1"
    assert "newer version" in refused.value.fix


async def test_another_refusal_stays_an_error(connect: Connect) -> None:
    installation = Installation(await connect(refusal(403, "Forbidden")))

    with pytest.raises(SweRolloutError):
        await installation.check_stored_versions(CRD, {"v1alpha1"})
