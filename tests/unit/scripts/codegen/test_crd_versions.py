"""The versions of RolloutJob, as docs/adr/0016-api-versions.md plans them.

Aspects: one version is stored, and it is served; every field that v1alpha1 has had is still there,
of its type; jobs of the first days are accepted by the models and by the definition, and none of
their fields is dropped; what is optional stays optional.
"""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import pytest
import yaml

from checkout import ROOT
from rollout_dev.codegen.crd import custom_resource_definition
from swe_rollout.spec.load import parse_job

GOLDEN = ROOT / "tests" / "golden"
JOBS: list[dict[str, Any]] = [
    *yaml.safe_load_all((GOLDEN / "rolloutjob-v1alpha1.yaml").read_text(encoding="utf-8"))
]
NAMES = [job["metadata"]["name"] for job in JOBS]
Json = dict[str, Any]
REQUIRED = {
    "spec": ["dataset", "policy"],
    "spec.dataset.swebench": ["uri"],
    "spec.policy.openai": ["model"],
}
"""What v1alpha1 has asked for from the first day on; nothing is added."""


FIELDS = (GOLDEN / "rolloutjob-v1alpha1-fields.txt").read_text(encoding="utf-8").splitlines()
SPEC: Json = json.loads(json.dumps(custom_resource_definition()))["spec"]
SCHEMA: Json = next(each for each in SPEC["versions"] if each["name"] == "v1alpha1")["schema"][
    "openAPIV3Schema"
]


def leaves(node: Json, path: str) -> list[str]:
    """List the fields below a node, each with its type."""
    if "properties" in node:
        return [
            leaf
            for name, child in node["properties"].items()
            for leaf in leaves(child, f"{path}.{name}")
        ]
    if "items" in node:
        return leaves(node["items"], f"{path}[]")
    if isinstance(node.get("additionalProperties"), dict):
        return leaves(node["additionalProperties"], f"{path}{{}}")
    return [f"{path} {node.get('type', 'any')}"]


def dropped(value: object, node: Json, path: str) -> list[str]:
    """List the fields of an object that the API server would prune: its schema lacks them."""
    if node.get("x-kubernetes-preserve-unknown-fields") or "properties" not in node:
        if isinstance(value, list) and "items" in node:
            return [each for item in value for each in dropped(item, node["items"], f"{path}[]")]
        return []
    assert isinstance(value, dict)
    return [
        each
        for name, child in value.items()
        for each in (
            dropped(child, node["properties"][name], f"{path}.{name}")
            if name in node["properties"]
            else [f"{path}.{name}"]
        )
    ]


def test_one_version_is_stored_and_it_is_served() -> None:
    versions = SPEC["versions"]

    assert [each["name"] for each in versions if each["storage"]] == ["v1alpha1"]
    assert all(each["served"] for each in versions if each["storage"])
    assert all(re.fullmatch(r"v\d+((alpha|beta)\d+)?", each["name"]) for each in versions)
    # Versions have one schema but for their name, so that nothing has to be converted by a webhook.
    assert SPEC.get("conversion", {"strategy": "None"}) == {"strategy": "None"}


def test_no_field_of_v1alpha1_is_gone_or_has_another_type() -> None:
    properties = SCHEMA["properties"]
    now = {*leaves(properties["spec"], "spec"), *leaves(properties["status"], "status")}

    assert len(FIELDS) > 150
    # Add a field beside the old one instead, and read both.
    assert [line for line in FIELDS if line not in now] == []


@pytest.mark.parametrize("job", JOBS, ids=NAMES)
def test_a_job_of_the_first_days_is_read(job: Json) -> None:
    read = parse_job(json.dumps(job), source="golden")

    assert read.metadata.name == job["metadata"]["name"]
    again = parse_job(json.dumps(read.to_yaml_dict()), source="again")
    assert again == read


@pytest.mark.parametrize("job", JOBS, ids=NAMES)
def test_the_definition_takes_a_job_of_the_first_days_and_drops_nothing(job: Json) -> None:
    # Names in a namespace, CEL and formats are the API server's; types, bounds and enums are these.
    problems = [
        f"{list(each.path)}: {each.message[:200]}"
        for each in jsonschema.Draft4Validator(SCHEMA).iter_errors({**job, "status": {}})
    ]

    assert problems == []
    assert dropped(job["spec"], SCHEMA["properties"]["spec"], "spec") == []


def test_a_field_that_the_definition_lacks_would_be_seen() -> None:
    job = {**JOBS[0]["spec"], "colour": "red", "limits": {"turn": 1}}

    found = dropped(job, SCHEMA["properties"]["spec"], "spec")

    assert found == ["spec.colour", "spec.limits.turn"]


@pytest.mark.parametrize("path", REQUIRED)
def test_nothing_that_was_optional_is_required(path: str) -> None:
    node = SCHEMA
    for name in path.split("."):
        node = node["properties"][name]

    assert sorted(node.get("required", [])) == REQUIRED[path]


def test_the_golden_jobs_use_most_fields() -> None:
    """Fields of golden jobs are what the tests above hold: most of the definition's."""
    used = {re.sub(r"\[\]|\{\}", "", leaf) for job in JOBS for leaf in _paths(job["spec"], "spec")}
    known = {re.sub(r"\[\]|\{\}", "", line.split()[0]) for line in FIELDS if line[:5] == "spec."}

    assert len(used & known) > len(known) / 2


def _paths(value: object, path: str) -> list[str]:
    match value:
        case dict():
            return [each for key, child in value.items() for each in _paths(child, f"{path}.{key}")]
        case list():
            return [each for child in value for each in _paths(child, path)]
        case _:
            return [path]
