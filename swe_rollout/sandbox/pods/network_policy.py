"""The NetworkPolicy that isolates the sandboxes of a namespace."""

from __future__ import annotations

from typing import Final

from swe_rollout.cluster import manifests
from swe_rollout.cluster.api_error import ApiError
from swe_rollout.cluster.client import ClusterClient
from swe_rollout.cluster.objects import NetworkPolicy
from swe_rollout.errors import PrerequisiteError
from swe_rollout.sandbox.base import Role
from swe_rollout.sandbox.pods.pod_spec import MANAGED_BY, ROLE_LABEL

POLICY_NAME: Final = "swe-rollout-sandboxes-deny-all"


def deny_all_policy() -> manifests.NetworkPolicyManifest:
    """Build the policy that denies all traffic to and from the sandboxes of a namespace.

    Workers have a role label as well, and need the network.
    """
    roles = tuple(role.value for role in Role)
    return manifests.NetworkPolicyManifest(
        metadata=manifests.ObjectMeta(name=POLICY_NAME, labels=MANAGED_BY),
        spec=manifests.NetworkPolicySpec(
            pod_selector=manifests.LabelSelector(
                match_expressions=(
                    manifests.LabelSelectorRequirement(key=ROLE_LABEL, operator="In", values=roles),
                )
            ),
            policy_types=("Ingress", "Egress"),
        ),
    )


async def ensure_isolation(client: ClusterClient, namespace: str) -> None:
    """Create the policy where it is missing; PrerequisiteError when it allows any traffic."""
    try:
        policy = await client.get_network_policy(namespace, POLICY_NAME)
    except ApiError as error:
        if not error.not_found:
            raise
        policy = await _create(client, namespace)
    if not policy.spec.denies_all:
        raise PrerequisiteError(
            "the NetworkPolicy of the sandboxes allows some traffic",
            why=f"{POLICY_NAME} in {namespace} was changed after its creation",
            fix=f"`kubectl -n {namespace} delete networkpolicy {POLICY_NAME}`: it is created again",
        )


async def _create(client: ClusterClient, namespace: str) -> NetworkPolicy:
    try:
        return await client.create_network_policy(namespace, deny_all_policy())
    except ApiError as error:
        if not error.already_exists:
            raise
    return await client.get_network_policy(namespace, POLICY_NAME)
