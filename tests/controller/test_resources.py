"""The manifests made for a job, checked against those who rely on them."""

from __future__ import annotations

import json

import msgspec
import pytest

from controller.builders import IMAGE, UID, job
from rollout_operator import resources
from rollout_operator.resources import Json, JsonValue
from swe_rollout.sandbox.pods import isolation, pod_spec
from swe_rollout.sandbox.session import keys
from swe_rollout.spec import status

RICH: dict[str, object] = {
    "workers": {
        "count": 3,
        "image": "registry.example/worker:2",
        "imagePullPolicy": "Never",
        "secrets": ["store-keys", "engine-key"],
        "resources": {"cpu": "1", "cpuLimit": "2", "memory": "3Gi", "ephemeralStorage": "4Gi"},
        "nodeSelector": {"pool": "cpu"},
        "tolerations": [
            {"key": "pool", "value": "cpu", "effect": "NoSchedule"},
            {"key": "spot", "operator": "Exists"},
        ],
        "imagePullSecrets": [{"name": "registry"}],
        "labels": {"team": "rl"},
    },
    "activeDeadlineSeconds": 90.2,
}


def inside(value: JsonValue, *path: str | int) -> JsonValue:
    for part in path:
        match value, part:
            case dict(), str():
                value = value[part]
            case list(), int():
                value = value[part]
            case _:
                raise AssertionError(f"no {part} in {value}")
    return value


def manifest(spec: dict[str, object] | None = None) -> Json:
    seen = job(spec)
    assert seen.spec is not None
    count = seen.spec.worker_count
    return resources.worker_job(seen.metadata, seen.spec, image=IMAGE, count=count)


def test_a_namespaces_key_reaches_workers_if_it_is_there() -> None:
    container = inside(manifest(), "spec", "template", "spec", "containers", 0)
    variables = inside(container, "env")
    assert isinstance(variables, list)
    (source,) = [each["valueFrom"] for each in variables if inside(each, "name") == keys.VARIABLE]  # type: ignore[index,call-overload]
    assert source == {
        "secretKeyRef": {
            "name": "swe-rollout-sandbox-key",
            "key": keys.VARIABLE,
            "optional": True,
        }
    }


def test_everything_of_the_workers_spec_is_in_the_worker_job() -> None:
    made = manifest(RICH)

    container = inside(made, "spec", "template", "spec", "containers", 0)
    assert inside(made, "spec", "completions") == inside(made, "spec", "parallelism") == 3
    assert inside(made, "spec", "activeDeadlineSeconds") == 91
    assert inside(made, "spec", "template", "spec", "nodeSelector") == {"pool": "cpu"}
    assert inside(made, "spec", "template", "spec", "tolerations") == [
        {"key": "pool", "operator": "Equal", "value": "cpu", "effect": "NoSchedule"},
        {"key": "spot", "operator": "Exists"},
    ]
    assert inside(made, "spec", "template", "spec", "imagePullSecrets") == [{"name": "registry"}]
    assert inside(made, "metadata", "labels", "team") == "rl"
    assert inside(made, "spec", "template", "metadata", "labels", "team") == "rl"
    assert inside(container, "image") == "registry.example/worker:2"
    assert inside(container, "imagePullPolicy") == "Never"
    assert inside(container, "envFrom") == [
        {"secretRef": {"name": "store-keys"}},
        {"secretRef": {"name": "engine-key"}},
    ]
    assert inside(container, "resources") == {
        "requests": {"memory": "3Gi", "ephemeral-storage": "4Gi", "cpu": "1"},
        "limits": {"memory": "3Gi", "ephemeral-storage": "4Gi", "cpu": "2"},
    }


def test_a_worker_runs_its_command_in_the_operators_image_and_knows_its_own_pod() -> None:
    container = inside(manifest(), "spec", "template", "spec", "containers", 0)

    assert inside(container, "image") == IMAGE
    assert inside(container, "command") == [
        *("swe-rollout", "worker", "--namespace", "team", "--job", "demo")
    ]
    assert inside(container, "env", 0, "name") == "POD_NAME"


def test_a_worker_serves_metrics_on_a_named_port() -> None:
    """A variable says so: images of earlier versions know no such option, and ignore it."""
    template = inside(manifest(), "spec", "template")
    container = inside(template, "spec", "containers", 0)

    port = resources.METRICS_PORT
    assert inside(container, "ports") == [{"name": "metrics", "containerPort": port}]
    assert inside(container, "env", 1) == {
        "name": "SWE_ROLLOUT_WORKER_METRICS",
        "value": f":{port}",
    }
    assert inside(template, "metadata", "annotations", "prometheus.io/port") == str(port)


def test_a_worker_that_was_killed_begins_again_in_its_pod_and_no_other() -> None:
    pod = inside(manifest(), "spec", "template", "spec")

    assert inside(pod, "restartPolicy") == "Never"
    assert inside(pod, "containers", 0, "restartPolicy") == "Never"
    assert inside(pod, "containers", 0, "restartPolicyRules") == [
        {"action": "Restart", "exitCodes": {"operator": "In", "values": [137]}}
    ]
    lives = inside(pod, "containers", 0, "env", 2)
    assert lives == {"name": "SWE_ROLLOUT_WORKER_LIVES", "value": "/tmp/lives"}  # noqa: S108
    assert inside(pod, "containers", 0, "volumeMounts", 0, "mountPath") == "/tmp"  # noqa: S108


def test_an_older_cluster_gets_the_same_worker_job_without_restarts() -> None:
    made = manifest(RICH)
    text = json.dumps(made)

    older = resources.without_restarts(made)

    assert json.dumps(made) == text
    container = inside(older, "spec", "template", "spec", "containers", 0)
    assert isinstance(container, dict)
    assert not {"restartPolicy", "restartPolicyRules"} & container.keys()
    container |= {
        name: inside(made, "spec", "template", "spec", "containers", 0, name)
        for name in ("restartPolicy", "restartPolicyRules")
    }
    assert older == made


def test_the_worker_job_and_its_pods_say_whose_they_are() -> None:
    for made in (manifest(), inside(manifest(), "spec", "template")):
        labels = inside(made, "metadata", "labels")
        assert inside(labels, status.JOB_LABEL) == "demo"
        assert inside(labels, status.JOB_UID_LABEL) == UID
        assert inside(labels, status.ROLE_LABEL) == "worker"


def test_workers_are_as_many_as_the_parallelism_needs() -> None:
    def count(spec: dict[str, object]) -> object:
        made = manifest({"workers": {}, **spec})
        env = inside(made, "spec", "template", "spec", "containers", 0, "env", 3)
        completions = inside(made, "spec", "completions")
        assert env == {"name": "SWE_ROLLOUT_WORKER_COUNT", "value": str(completions)}
        return completions

    assert [count({"parallelism": n}) for n in (1, 250, 251, 10_000)] == [1, 1, 2, 40]
    assert count({"parallelism": 10_000, "workers": {"count": 3}}) == 3


def test_only_what_needs_other_pods_changes_the_digest() -> None:
    def digest(spec: dict[str, object] | None = None) -> str:
        seen = job(spec)
        assert seen.spec is not None
        return resources.digest(seen.spec)

    same: list[dict[str, object]] = [
        {"parallelism": 9},
        {"suspend": True},
        {"activeDeadlineSeconds": 5},
        {"workers": {"count": 2, "imagePullPolicy": "IfNotPresent"}},
    ]
    assert {digest(), *map(digest, same)} == {digest()}
    assert digest({"workers": {"count": 1}}) == digest({"workers": {}})
    assert digest({"workers": {"count": 2, "image": "other"}}) != digest()


def test_the_policy_is_the_one_that_sandboxes_look_for() -> None:
    policy = resources.network_policy("team")

    expected = msgspec.json.decode(msgspec.json.encode(isolation.deny_all_policy()))
    assert policy["spec"] == expected["spec"]
    assert inside(policy, "metadata", "name") == isolation.POLICY_NAME == resources.POLICY_NAME
    assert "ownerReferences" not in str(policy), "it must outlive the last sandbox"
    assert resources.POLICY_LABELS.items() > pod_spec.MANAGED_BY.items()


def test_the_labels_are_the_ones_that_sandboxes_carry() -> None:
    assert status.JOB_LABEL == pod_spec.JOB_LABEL
    assert status.ROLE_LABEL == pod_spec.ROLE_LABEL


@pytest.mark.threat(point=23)
def test_no_two_jobs_share_an_account_and_none_can_choose_its_name() -> None:
    made = [resources.access_name(uid) for uid in (UID, "another-uid")]

    assert len(set(made)) == 2
    assert "demo" not in made[0]
    role = {"cloud.example/role": "rollouts"}
    account, binding = resources.service_account(job().metadata, role), manifest()
    assert inside(account, "metadata", "annotations") == role
    assert inside(account, "metadata", "name") == made[0]
    assert inside(binding, "spec", "template", "spec", "serviceAccountName") == made[0]


@pytest.mark.threat(point=25)
def test_workers_get_the_role_of_the_installation() -> None:
    binding = resources.role_binding(job().metadata)

    assert inside(binding, "roleRef", "kind") == "ClusterRole"
    assert inside(binding, "roleRef", "name") == "swe-rollout-worker"
    assert inside(binding, "subjects", 0, "namespace") == "team"


@pytest.mark.threat(point=29)
def test_a_worker_is_not_process_1_which_ignores_signals_until_it_handles_them() -> None:
    assert inside(manifest(), "spec", "template", "spec", "shareProcessNamespace") is True
