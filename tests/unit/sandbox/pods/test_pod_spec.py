"""The manifest of a sandbox pod: its name, its labels, and its hardening."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from swe_rollout.cluster.objects import OwnerReference
from swe_rollout.sandbox.base import Role, SandboxRequest
from swe_rollout.sandbox.pods.pod_spec import (
    RunIdentity,
    label_value,
    pod_manifest,
    pod_name,
    with_template,
)
from swe_rollout.spec.pod_template import PodTemplate
from swe_rollout.spec.sandbox import PodSandbox, Resources
from swe_rollout.types.episode import EpisodeId

OWNER = RunIdentity(run="0123456789ab", started="2026-11-20T10:00:00+00:00")
UID = "5c3b7ddc-0d2b-4f59-a2f8-77a5d1c1a001"
ON_CLUSTER = RunIdentity(
    run="0123456789ab",
    started="2026-11-20T10:00:00+00:00",
    job=OwnerReference(
        api_version="swe-rollout.dev/v1alpha1", kind="RolloutJob", name="nightly", uid=UID
    ),
)


def request(
    *,
    job: str = "nightly",
    instance: str = "django__django-11099",
    sample: int = 3,
    attempt: int = 1,
    role: Role = Role.AGENT,
    part: int = 0,
) -> SandboxRequest:
    return SandboxRequest(
        episode=EpisodeId(job, instance, sample),
        role=role,
        image="registry.example/django:1",
        workdir="/testbed",
        attempt=attempt,
        deadline_s=1800.5,
        part=part,
    )


def as_json(sandbox: PodSandbox | None = None) -> dict[str, Any]:
    return pod_manifest(request(), sandbox or PodSandbox(), OWNER)


def test_a_name_says_job_instance_sample_attempt_and_role() -> None:
    name = pod_name(request(), OWNER)
    assert re.fullmatch(r"nightly-django-django-11099-3-1-a-[0-9a-f]{12}", name)


def test_the_same_request_has_the_same_name_and_any_other_has_another() -> None:
    names = {
        pod_name(request(), OWNER),
        pod_name(request(sample=4), OWNER),
        pod_name(request(attempt=2), OWNER),
        pod_name(request(role=Role.GRADER), OWNER),
        pod_name(request(role=Role.GRADER, part=2), OWNER),
        pod_name(request(instance="django__django-11100"), OWNER),
        pod_name(request(job="nightly2"), OWNER),
    }
    assert len(names) == 7
    assert pod_name(request(), OWNER) == pod_name(request(), OWNER)


def test_instances_that_differ_only_where_a_name_is_cut_have_different_names() -> None:
    one, two = (pod_name(request(instance="x" * 80 + end), OWNER) for end in "ab")
    assert one != two


@pytest.mark.threat(point=25)
@pytest.mark.parametrize("instance", ["django__django-11099", "x" * 120])
def test_a_sandbox_of_a_rolloutjob_is_told_by_its_uid(instance: str) -> None:
    metadata = pod_manifest(request(instance=instance), PodSandbox(), ON_CLUSTER)["metadata"]
    assert metadata["name"].endswith("-5c3b7ddc")
    assert len(metadata["name"]) <= 63
    assert metadata["labels"]["swe-rollout.dev/job-uid"] == UID
    (owner,) = metadata["ownerReferences"]
    assert owner["controller"], "else a ReplicaSet with its labels would adopt it"
    assert owner["uid"] == UID


@given(
    job=st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True),
    instance=st.text(min_size=1, max_size=120),
    sample=st.integers(0, 99999),
    attempt=st.integers(1, 99),
)
def test_every_name_is_a_dns_label_and_every_label_is_valid(
    job: str, instance: str, sample: int, attempt: int
) -> None:
    wanted = request(job=job, instance=instance, sample=sample, attempt=attempt)
    metadata = pod_manifest(wanted, PodSandbox(), ON_CLUSTER)["metadata"]
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", metadata["name"])
    for value in metadata["labels"].values():
        assert re.fullmatch(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", value)


def test_a_label_that_had_to_be_cut_stays_readable_and_unique() -> None:
    one, two = label_value("owner/repo " + "x" * 80), label_value("owner/repo " + "x" * 81)
    assert one.startswith("owner-repo-xxx")
    assert one != two


def test_the_address_is_an_annotation_in_full() -> None:
    annotations = as_json()["metadata"]["annotations"]
    assert annotations["swe-rollout.dev/address"] == "nightly/django__django-11099/3"


def test_a_sandbox_has_no_token_no_name_service_and_an_end() -> None:
    spec = as_json()["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False
    assert spec["dnsPolicy"] == "None"
    assert spec["dnsConfig"] == {"nameservers": ["127.0.0.1"]}
    assert spec["restartPolicy"] == "Never"
    assert spec["activeDeadlineSeconds"] == 1801
    assert spec["terminationGracePeriodSeconds"] == 1


def test_a_sandbox_can_not_gain_privileges() -> None:
    spec = as_json()["spec"]
    (container,) = spec["containers"]
    assert spec["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
    assert "SYS_ADMIN" not in container["securityContext"]["capabilities"]["add"]
    assert "NET_RAW" not in container["securityContext"]["capabilities"]["add"]
    assert not {"hostNetwork", "hostPID", "hostIPC", "volumes"} & spec.keys()
    assert "env" not in container


def test_memory_and_disk_are_reserved_in_full_and_cpu_is_not_limited() -> None:
    resources = as_json(PodSandbox(resources=Resources(cpu="500m", memory="1Gi")))["spec"][
        "containers"
    ][0]["resources"]
    assert resources == {
        "requests": {"cpu": "500m", "memory": "1Gi", "ephemeral-storage": "4Gi"},
        "limits": {"memory": "1Gi", "ephemeral-storage": "4Gi"},
    }


def test_a_cpu_limit_and_a_runtime_class_are_sent_when_requested() -> None:
    spec = as_json(PodSandbox(resources=Resources(cpu_limit="2"), runtime_class="gvisor"))["spec"]
    assert spec["containers"][0]["resources"]["limits"]["cpu"] == "2"
    assert spec["runtimeClassName"] == "gvisor"
    assert "runtimeClassName" not in as_json()["spec"]


def test_agents_see_the_files_of_bundles_and_graders_do_not() -> None:
    sandbox = PodSandbox(bundles={"/opt/two": "mine/two:1", "/opt/harness": "mine/codex:1"})
    spec = pod_manifest(request(), sandbox, OWNER)["spec"]
    assert [each["image"]["reference"] for each in spec["volumes"]] == [
        "mine/codex:1",
        "mine/two:1",
    ]
    mounts = spec["containers"][0]["volumeMounts"]
    assert [(m["name"], m["mountPath"], m["readOnly"]) for m in mounts] == [
        ("bundle-0", "/opt/harness", True),
        ("bundle-1", "/opt/two", True),
    ]
    claimed = PodSandbox(bundle_claims={"/opt/harness": "swe-rollout-bundle-codex-1"})
    (volume,) = pod_manifest(request(), claimed, OWNER)["spec"]["volumes"]
    assert volume["persistentVolumeClaim"] == {
        "claimName": "swe-rollout-bundle-codex-1",
        "readOnly": True,
    }
    assert "volumes" not in pod_manifest(request(role=Role.GRADER), claimed, OWNER)["spec"]
    graders = pod_manifest(request(role=Role.GRADER), sandbox, OWNER)["spec"]
    assert "volumes" not in graders
    assert "volumeMounts" not in graders["containers"][0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"bundleClaims": {"/opt/harness": "prod-database"}},
        {"bundleClaims": {"/etc": "swe-rollout-bundle-a"}},
        {"bundles": {"/opt/a": "a:1"}, "bundleClaims": {"/opt/a": "swe-rollout-bundle-a"}},
    ],
)
def test_a_claim_of_others_or_a_place_twice_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=r"bundle|pattern"):
        PodSandbox.model_validate(wrong)


@pytest.mark.parametrize("taint", ["not-ready", "unreachable"])
def test_a_sandbox_leaves_a_lost_node_after_half_a_minute(taint: str) -> None:
    assert {
        "key": f"node.kubernetes.io/{taint}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 30,
    } in as_json()["spec"]["tolerations"]


@pytest.mark.parametrize("network", ["none", "requested"])
@pytest.mark.parametrize("wants", ["network", "nothing"])
def test_a_pod_has_a_network_only_where_task_and_job_say_so(network: str, wants: str) -> None:
    sandbox = PodSandbox.model_validate({"network": network})
    asked = replace(request(), wants_network=wants == "network")
    made = pod_manifest(asked, sandbox, OWNER)
    is_given = (network, wants) == ("requested", "network")
    label = made["metadata"]["labels"]["swe-rollout.dev/network"]
    assert label == ("requested" if is_given else "none")
    assert made["spec"]["dnsPolicy"] == ("ClusterFirst" if is_given else "None")
    assert ("dnsConfig" in made["spec"]) is not is_given


def test_a_template_can_not_take_the_label_of_a_network() -> None:
    with pytest.raises(ValueError, match="without dots"):
        PodTemplate.model_validate(
            {"metadata": {"labels": {"swe-rollout.dev/network": "requested"}}}
        )


def test_a_graders_container_idles_beside_an_agents_and_reserves_next_to_nothing() -> None:
    sandbox = PodSandbox(
        resources=Resources(cpu="1", memory="2Gi"), bundles={"/opt/harness": "mine/codex:1"}
    )
    wanted = replace(request(), grading_s=600.0)
    spec = pod_manifest(wanted, sandbox, OWNER)["spec"]
    agent, grader = spec["containers"]
    assert spec["activeDeadlineSeconds"] == 2401
    assert grader["name"] == "sandbox-grader"
    assert grader["image"] == agent["image"]
    assert grader["securityContext"] == agent["securityContext"]
    assert grader["resources"]["limits"] == agent["resources"]["limits"]
    assert grader["resources"]["requests"]["memory"] == "4Mi"
    assert agent["resources"]["requests"]["memory"] == "2Gi"
    assert "volumeMounts" not in grader
    assert "shareProcessNamespace" not in spec


def test_a_template_sets_the_limits_of_both_containers() -> None:
    amounts = {"limits": {"memory": "3Gi"}, "requests": {"memory": "3Gi"}}
    template = PodTemplate.model_validate(
        {"spec": {"containers": [{"name": "sandbox", "resources": amounts}]}}
    )
    made = pod_manifest(replace(request(), grading_s=600.0), PodSandbox(), OWNER)
    agent, grader = with_template(made, template)["spec"]["containers"]
    assert agent["resources"]["requests"]["memory"] == "3Gi"
    assert grader["resources"]["limits"] == agent["resources"]["limits"]
    assert grader["resources"]["requests"]["memory"] == "4Mi"
