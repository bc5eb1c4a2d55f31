"""A job's own pod template: the few fields that it has, and how they merge."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from pod_templates import ALLOWED, FORBIDDEN, Attempt
from swe_rollout.sandbox.base import Role, SandboxRequest
from swe_rollout.sandbox.pods.pod_spec import RunIdentity, pod_manifest, with_template
from swe_rollout.spec.pod_template import PodTemplate, template_fields
from swe_rollout.spec.sandbox import PodSandbox
from swe_rollout.types.episode import EpisodeId
from unit.spec.spec_parts import parsed, refused, written

REQUEST = SandboxRequest(EpisodeId("job", "one", 0), Role.AGENT, "image:1", "/testbed")


def merged(template: dict[str, Any] | None) -> dict[str, Any]:
    wanted = None if template is None else PodTemplate.model_validate(template)
    manifest = pod_manifest(REQUEST, PodSandbox(), RunIdentity("run", "now"))
    return with_template(manifest, wanted)


def job(template: object) -> str:
    return written(sandbox={"pod": {"template": template}})


@pytest.mark.parametrize("template", [None, {}, {"metadata": {}, "spec": {}}])
def test_without_a_setting_the_pod_is_the_default(template: dict[str, Any] | None) -> None:
    manifest = pod_manifest(REQUEST, PodSandbox(), RunIdentity("run", "now"))
    assert merged(template) == manifest


def test_fields_of_the_pod_are_added() -> None:
    template = {
        "spec": {
            "nodeSelector": {"pool": "sandboxes"},
            "imagePullSecrets": [{"name": "registry"}],
            "runtimeClassName": "gvisor",
            "hostUsers": False,
            **ALLOWED["places"]["spec"],
        }
    }
    spec = merged(template)["spec"]
    added = {name: value for name, value in template["spec"].items() if name != "tolerations"}
    assert added.items() <= spec.items()
    assert spec["automountServiceAccountToken"] is False


def test_tolerations_are_added_to_the_defaults() -> None:
    tolerations = merged({"spec": {"tolerations": [{"key": "rl", "operator": "Exists"}]}})["spec"][
        "tolerations"
    ]
    assert [toleration["key"] for toleration in tolerations] == [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "rl",
    ]


def test_an_amount_replaces_one_default_and_removes_none() -> None:
    (only,) = merged(ALLOWED["resources"])["spec"]["containers"]
    assert only["image"] == "image:1"
    assert only["command"][0] == "/bin/sh"
    assert only["resources"] == {
        "limits": {"cpu": "2", "memory": "4Gi", "ephemeral-storage": "4Gi"},
        "requests": {"cpu": "250m", "memory": "1Gi", "ephemeral-storage": "4Gi"},
    }
    assert only["securityContext"]["capabilities"]["drop"] == ["ALL"]


def test_labels_are_added_and_the_owner_stays() -> None:
    metadata = merged({"metadata": {"labels": {"team": "rl"}, "annotations": {"a": "b"}}})[
        "metadata"
    ]
    assert metadata["labels"]["team"] == "rl"
    assert metadata["labels"]["swe-rollout.dev/run"] == "run"
    assert metadata["annotations"]["a"] == "b"
    assert metadata["annotations"]["swe-rollout.dev/address"] == "job/one/0"


@pytest.mark.threat(point=26)
@pytest.mark.parametrize("attempt", FORBIDDEN, ids=str)
def test_what_is_not_on_the_list_is_refused_by_its_path(attempt: Attempt) -> None:
    problems = refused(job(attempt.template))
    assert all(each.field.startswith("spec.sandbox.pod.template") for each in problems)
    assert any(attempt.field in f"{each.field}: {each.message}" for each in problems)
    with pytest.raises(ValidationError):
        PodSandbox.model_validate({"template": attempt.template})


@pytest.mark.threat(point=26)
def test_a_refusal_says_what_is_allowed() -> None:
    (problem,) = refused(job({"spec": {"hostPID": True}}))
    assert problem.field == "spec.sandbox.pod.template.spec.hostPID"
    assert "not for a job to set, only nodeSelector, affinity" in problem.message


@pytest.mark.threat(point=26)
@pytest.mark.parametrize(
    "text",
    [
        "{spec: {<<: {hostPID: true}}}",
        "{<<: [{spec: {hostPID: true}}]}",
        "{spec: {nodeSelector: {a: b}, nodeSelector: {c: d}}}",
        "{spec: !!python/object:os.system {}}",
    ],
)
def test_tricks_of_yaml_do_not_get_past_the_list(text: str) -> None:
    plain = job({}).replace('"template": {}', f'"template": {text}')
    assert refused(plain)


@pytest.mark.threat(point=26)
@pytest.mark.parametrize("template", ALLOWED.values(), ids=ALLOWED)
def test_what_is_on_the_list_is_taken(template: dict[str, Any]) -> None:
    made = parsed(job(template)).spec.sandbox.pod
    assert made is not None
    assert made.template is not None
    again = made.template.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert PodTemplate.model_validate(again) == made.template
    merged(template)


def test_the_fields_at_a_path_are_known_inside_a_template_only() -> None:
    template = ("spec", "sandbox", "pod", "template")
    assert template_fields(template) == ("metadata", "spec")
    assert template_fields((*template, "spec", "containers")) == ("name", "resources")
    assert template_fields((*template, "spec", "affinity")) == ("nodeAffinity",)
    assert template_fields(("spec", "sandbox", "pod")) == ()
