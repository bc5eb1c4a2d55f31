"""The NetworkPolicy that isolates sandboxes: the pods it selects, and the traffic it allows."""

from __future__ import annotations

from swe_rollout.sandbox.pods.isolation import deny_all_policy


def test_the_network_policy_selects_sandboxes_but_not_workers_and_lets_nothing_through() -> None:
    policy = deny_all_policy()
    roles = {"key": "swe-rollout.dev/role", "operator": "In", "values": ["agent", "grader"]}
    assert policy["spec"] == {
        "podSelector": {"matchExpressions": [roles]},
        "policyTypes": ["Ingress", "Egress"],
    }
