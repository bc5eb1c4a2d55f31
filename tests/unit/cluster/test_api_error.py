"""What a refusal by RBAC says of the right that is missing, and the commands that grant it."""

from __future__ import annotations

import json

import pytest

from swe_rollout.cluster.api_error import MissingRight, api_error

POD = (
    'pods is forbidden: User "system:serviceaccount:team:ann" cannot create resource "pods" in '
    'API group "" in the namespace "team"'
)


def refused(user: str, verb: str, resource: str, group: str, where: str) -> MissingRight | None:
    return MissingRight.named_in(
        f'x is forbidden: User "{user}" cannot {verb} resource "{resource}" in API group "{group}"'
        f"{where}"
    )


def test_a_refusal_names_the_right_and_who_lacks_it() -> None:
    assert MissingRight.named_in(POD) == MissingRight(
        "system:serviceaccount:team:ann", "create", "pods", "team"
    )
    assert refused("bob", "list", "rolloutjobs", "swe-rollout.dev", " at the cluster scope") == (
        MissingRight("bob", "list", "rolloutjobs.swe-rollout.dev", "")
    )
    assert refused("bob", "patch", "deployments/scale", "apps", ' in the namespace "a"') == (
        MissingRight("bob", "patch", "deployments.apps/scale", "a")
    )


@pytest.mark.parametrize(
    "message",
    [
        "",
        'pods "p" is forbidden: exceeded quota: q, requested: pods=1',
        'User "u" cannot get path "/metrics"',
        'User "u; rm -rf /" cannot $(x) resource "pods" in API group "" in the namespace "a"',
    ],
)
def test_any_other_refusal_names_none(message: str) -> None:
    assert MissingRight.named_in(message) is None


def test_the_cure_is_two_commands_for_whoever_grants_rights() -> None:
    found = MissingRight.named_in(POD)
    assert found is not None
    assert (
        "`kubectl create role may-create-pods --verb=create --resource=pods -n team && "
        "kubectl create rolebinding may-create-pods --role=may-create-pods "
        "--serviceaccount=team:ann -n team`"
    ) in found.fix
    everywhere = refused("ann o'x", "list", "nodes", "", " at the cluster scope")
    assert everywhere is not None
    assert (
        "kubectl create clusterrolebinding may-list-nodes --clusterrole=may-list-nodes "
        """--user='ann o'"'"'x'`"""
    ) in everywhere.fix


@pytest.mark.parametrize("name", ["swe-rollout-operator", "swe-rollout-worker-0a1b"])
def test_the_accounts_of_an_installation_get_their_rights_from_it(name: str) -> None:
    found = refused(
        f"system:serviceaccount:team:{name}", "get", "pods/exec", "", ' in the namespace "team"'
    )
    assert found is not None
    assert "`swe-rollout install` prints again" in found.fix
    assert "kubectl create role" not in found.fix


def test_the_error_of_the_request_has_the_cure() -> None:
    body = json.dumps({"kind": "Status", "reason": "Forbidden", "message": POD}).encode()
    error = api_error("create pod p", 403, body)
    assert error.lacks_right
    assert "cannot create resource" in error.why
    assert "--resource=pods -n team" in error.fix
    assert not api_error("create pod p", 404, body).lacks_right
