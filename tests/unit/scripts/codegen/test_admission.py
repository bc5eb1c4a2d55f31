"""The admission policies say what the code says, and each one is in force."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from swe_rollout.cli.install import manifests
from swe_rollout.sandbox.pods.pod_spec import (
    CONTAINER,
    GRADER_CONTAINER,
    JOB_UID_LABEL,
    ROOT_CAPABILITIES,
)
from swe_rollout.spec.bounds import MAX_AMOUNTS
from swe_rollout.spec.pod_template import ANNOTATIONS, KUEUE, TEMPLATE_PATH, template_fields
from swe_rollout.spec.status import JOB_UID_LABEL as LABEL_OF_STATUS
from swe_rollout.spec.status import PROGRESS_ANNOTATION

pytestmark = pytest.mark.threat(point=26)


def objects(kind: str) -> dict[str, Any]:
    return {
        document["metadata"]["name"]: document["spec"]
        for document in yaml.safe_load_all(manifests())
        if document["kind"] == kind
    }


POLICIES = objects("ValidatingAdmissionPolicy")


def text_of(name: str) -> str:
    """All expressions of the policy, in one line."""
    spec = POLICIES[name]
    parts = [each["expression"] for each in (*spec.get("variables", ()), *spec["validations"])]
    return " ".join(" ".join(parts).split())


def listed(values: object) -> str:
    return "[" + ", ".join(f"'{value}'" for value in values) + "]"  # type: ignore[attr-defined]


def test_every_policy_is_bound_and_denies_when_in_doubt() -> None:
    bindings = objects("ValidatingAdmissionPolicyBinding")
    assert len(POLICIES) > 8
    assert set(bindings) == set(POLICIES)
    for name, policy in POLICIES.items():
        assert bindings[name]["policyName"] == name
        assert bindings[name]["validationActions"] == ["Deny"]
        assert ("paramKind" in policy) == ("paramRef" in bindings[name])
        others = "swe-rollout-new-secrets"
        assert policy["failurePolicy"] == ("Ignore" if name == others else "Fail")
        for validation in policy["validations"]:
            assert validation["reason"] == "Forbidden"
            assert "message" in validation or "messageExpression" in validation


def test_the_template_policy_lists_the_fields_of_the_model() -> None:
    text = text_of("swe-rollout-pod-template")
    for inside in ((), ("metadata",), ("spec",), ("spec", "containers")):
        assert listed(template_fields((*TEMPLATE_PATH, *inside))) in text
    assert listed(template_fields((*TEMPLATE_PATH, "spec", "containers", "resources"))) in text
    assert template_fields((*TEMPLATE_PATH, "spec", "affinity")) == ("nodeAffinity",)


def test_the_pod_policy_has_the_names_and_bounds_of_the_code() -> None:
    text = text_of("swe-rollout-sandboxes")
    assert listed(ROOT_CAPABILITIES) in text
    assert listed(ANNOTATIONS) in text
    assert f"startsWith('{KUEUE}')" in text
    assert f"in [['{CONTAINER}'], ['{CONTAINER}', '{GRADER_CONTAINER}']]" in text
    assert JOB_UID_LABEL == LABEL_OF_STATUS
    assert f"'{JOB_UID_LABEL}' in variables.labels" in text
    assert f"name == '{PROGRESS_ANNOTATION}'" in text_of("swe-rollout-sandbox-changes")
    for name, most in MAX_AMOUNTS.items():
        assert re.search(rf"amounts\['{name}'\]\)\)\.compareTo\(quantity\('{most}'\)\) <= 0", text)
