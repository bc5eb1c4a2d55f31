"""The CRD: what is made of the models, and that the files made from it are the newest."""

from __future__ import annotations

import ipaddress
import json
import re
from typing import Any

import pytest
import yaml
from pydantic.alias_generators import to_camel

from checkout import ROOT
from rollout_dev.codegen.__main__ import generated
from rollout_dev.codegen.crd import (
    custom_resource_definition,
    job_schema,
    rules,
)
from rollout_dev.codegen.structural import Json, Schema
from swe_rollout.cli.install import manifests
from swe_rollout.grading.rewards import REWARD_TERMS
from swe_rollout.spec.addresses import (
    CONTROL_PORTS,
    METADATA_HOSTS,
    METADATA_IPS,
    METADATA_NETWORKS,
)
from swe_rollout.spec.bounds import MAX_AMOUNTS
from swe_rollout.spec.dataset import Dataset
from swe_rollout.spec.fields import all_fields, fields_of
from swe_rollout.spec.load import parse_job
from swe_rollout.spec.pod_template import ANNOTATIONS, KUEUE
from swe_rollout.spec.policy import Policy
from swe_rollout.spec.reward_terms import OPTIONS
from swe_rollout.spec.sandbox import SandboxSpec

MINIMAL: dict[str, Any] = {
    "apiVersion": "swe-rollout.dev/v1alpha1",
    "kind": "RolloutJob",
    "metadata": {"name": "demo"},
    "spec": {
        "dataset": {"releasePairs": {}},
        "policy": {"scripted": {}},
        "sandbox": {"pod": {}},
        "store": {"uri": "s3://rollouts"},
    },
}


def keys(value: Json) -> set[str]:
    """Every key at any depth, names of fields left out."""
    match value:
        case dict():
            inside = [keys(v) for k, v in value.items() if k not in ("properties", "default")]
            fields = value.get("properties")
            named = [keys(each) for each in fields.values()] if isinstance(fields, dict) else []
            return set(value).union(*inside, *named)
        case list():
            return set().union(*map(keys, value))
        case _:
            return set()


def test_nothing_is_left_that_a_structural_schema_may_not_have() -> None:
    used = keys(job_schema().to_json())

    assert "x-kubernetes-validations" in used
    assert not used & {"$ref", "$defs", "anyOf", "oneOf", "const", "title", "x-variant"}
    assert "nullable" not in used


def test_every_field_of_the_model_is_in_the_schema_with_its_words() -> None:
    schema = job_schema()

    for field in all_fields():
        # A mapping with a short form may be anything in the schema.
        if field.path[0] == "spec" and "harness" not in field.path[:-1]:
            assert schema.at(field.dotted).description, field.dotted


def filled(value: object, schema: Schema) -> object:
    """What the API server makes of `value`: defaults from the outside in."""
    if not isinstance(value, dict) or not schema.properties:
        return value
    whole = {
        name: each.default for name, each in schema.properties.items() if each.default is not None
    } | value
    return {
        name: filled(each, schema.properties[name]) if name in schema.properties else each
        for name, each in whole.items()
    }


@pytest.mark.parametrize("workers", [{}, {"resources": {"cpu": "1"}}])
def test_defaults_of_the_cluster_are_those_of_the_model(workers: dict[str, Any]) -> None:
    written = {**MINIMAL, "spec": {**MINIMAL["spec"], "workers": workers}}
    stored = filled(written, job_schema())

    assert stored != written
    assert parse_job(json.dumps(stored), source="cluster") == parse_job(
        json.dumps(written), source="file"
    )


def test_defaults_of_one_machine_are_dropped_on_a_cluster() -> None:
    schema = job_schema()

    assert schema.at("spec.sandbox").default is None
    assert schema.at("spec.store.uri").default is None


def test_the_api_server_fills_in_nothing_that_a_preset_brings() -> None:
    agent = job_schema().at("spec.agent")

    assert agent.default == {}
    assert {agent.at(name).default for name in ("toolFormat", "tools", "systemPrompt")} == {None}


def test_rules_name_what_the_code_names() -> None:
    by_path: dict[str, str] = {}
    for rule in rules():
        by_path[rule.path] = by_path.get(rule.path, "") + rule.expression + rule.message
    for path, model in {
        "spec.dataset": Dataset,
        "spec.policy": Policy,
        "spec.sandbox": SandboxSpec,
    }.items():
        names = [to_camel(name) for name in model.variants()]
        assert " + ".join(f"(has(self.{name}) ? 1 : 0)" for name in names) in by_path[path]
        assert all(f"`{name}`" in by_path[path] for name in names)
    engines = ("sglang.url", "sglang.workers[]", "openai.url", "openai.urls[]", "anthropic.url")
    for engine in engines:
        text = by_path[f"spec.policy.{engine}"]
        assert all(re.escape(host) in text for host in (*METADATA_HOSTS, *METADATA_IPS))
        (refused,) = re.findall(r"\\\[\((fe\[89ab\]\|.*?)\)\|\(metadata", text)
        for network in map(ipaddress.IPv6Network, METADATA_NETWORKS):
            for written in (str(network[254]), network[254].exploded):
                assert re.match(refused, written), written
        assert f":({'|'.join(map(str, CONTROL_PORTS))})" in text
    template = "spec.sandbox.pod.template"
    for kind in ("requests", "limits"):
        text = by_path[f"{template}.spec.containers[].resources.{kind}"]
        assert f"self.all(key, key in {list(MAX_AMOUNTS)})" in text
        for name, most in MAX_AMOUNTS.items():
            assert f"!quantity(self['{name}']).isGreaterThan(quantity('{most}'))" in text
    for path in ("spec.sandbox.pod.resources", "spec.workers.resources"):
        for field, name in {
            "cpu": "cpu",
            "cpuLimit": "cpu",
            "memory": "memory",
            "ephemeralStorage": "ephemeral-storage",
        }.items():
            assert f"isGreaterThan(quantity('{MAX_AMOUNTS[name]}'))" in by_path[f"{path}.{field}"]
    annotations = by_path[f"{template}.metadata.annotations"]
    assert f"key in {list(ANNOTATIONS)}" in annotations
    assert f"startsWith('{KUEUE}')" in annotations


def test_conditions_are_keyed_by_type_and_a_job_scales_by_parallelism() -> None:
    crd: Any = custom_resource_definition()
    version = crd["spec"]["versions"][0]
    conditions = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"][
        "conditions"
    ]

    assert conditions["x-kubernetes-list-map-keys"] == ["type"]
    assert version["subresources"]["scale"] == {
        "specReplicasPath": ".spec.parallelism",
        "statusReplicasPath": ".status.episodes.running",
        "labelSelectorPath": ".status.selector",
    }
    assert crd["spec"]["names"]["shortNames"] == ["rj"]
    assert [each["name"] for each in version["additionalPrinterColumns"]][:8] == (
        ["STATE", "DONE", "RESOLVED", "REWARD", "MASKED", "RUNNING", "POLICY", "AGE"]
    )


def test_every_reward_term_and_its_options_are_on_the_page() -> None:
    page = (ROOT / "docs" / "reference" / "rewards.md").read_text("utf-8")

    for name in REWARD_TERMS._builtin:
        options = fields_of(OPTIONS[name]) if name in OPTIONS else ()
        row = re.search(rf"^\| `{name}` \|.*\| ([^|]*) \|$", page, re.MULTILINE)
        assert row is not None, name
        assert row[1].strip() == ", ".join(f"`{each.name}`" for each in options)


def test_generated_files_are_what_the_code_makes() -> None:
    differing = [
        name for name, text in generated().items() if (ROOT / name).read_text("utf-8") != text
    ]
    assert differing == [], "run scripts/generate"


def test_samples_are_jobs() -> None:
    jobs = [
        document
        for path in sorted((ROOT / "manifests" / "samples").glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
        if document["kind"] == "RolloutJob"
    ]

    assert len(jobs) >= 2
    for job in jobs:
        assert parse_job(json.dumps(job), source="sample").spec.sandbox.pod is not None


@pytest.mark.threat(point=25)
def test_the_operator_binds_one_role_and_holds_none_of_its_rights_over_pods() -> None:
    rules = {
        document["metadata"]["name"]: document["rules"]
        for document in yaml.safe_load_all(manifests())
        if document["kind"] == "ClusterRole"
    }
    of_operator = {
        (resource, verb): rule.get("resourceNames")
        for rule in rules["swe-rollout-operator"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }

    assert of_operator["clusterroles", "bind"] == ["swe-rollout-worker"]
    assert "swe-rollout-worker" in rules
    over_pods = {verb for resource, verb in of_operator if resource.startswith("pods")}
    assert over_pods == {"list", "watch", "delete"}
    read = {resource for resource, _ in of_operator}
    assert not read & {"secrets", "pods/exec", "roles", "configmaps"}
    assert not {"*"} & read
    assert not {"*", "escalate", "impersonate"} & {verb for _, verb in of_operator}
