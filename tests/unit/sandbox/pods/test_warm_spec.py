"""Which pods wait; their labels, their deadline, and the patch that assigns one to an episode."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from swe_rollout.cluster.objects import Metadata, OwnerReference, Pod
from swe_rollout.sandbox.base import Role, SandboxRequest
from swe_rollout.sandbox.pods import pod_spec, warm_spec
from swe_rollout.spec.sandbox import PodSandbox, WarmPods
from swe_rollout.types.episode import EpisodeId

JOB = OwnerReference("swe-rollout.dev/v1alpha1", "RolloutJob", "nightly", "u1")
OWNER = pod_spec.RunIdentity(run="0123456789ab", started="2026-11-20T10:00:00+00:00", job=JOB)
REQUEST = SandboxRequest(
    EpisodeId("nightly", "django__django-1", 3), Role.GRADER, "registry/django:1", "/testbed"
)


def manifest(image: str = "registry/django:1", job: str = "nightly") -> dict[str, Any]:
    return warm_spec.warm_manifest(
        image, job=job, lifetime_s=900.5, sandbox=PodSandbox(), owner=OWNER
    )


def test_it_is_the_pod_of_an_episode_but_for_whose_it_is() -> None:
    cold = pod_spec.pod_manifest(REQUEST, PodSandbox(), OWNER)
    warm = manifest()
    assert warm["spec"] == {**cold["spec"], "activeDeadlineSeconds": 901}
    assert warm["metadata"]["ownerReferences"] == cold["metadata"]["ownerReferences"]


def test_it_is_isolated_and_labelled_with_its_run_and_belongs_to_no_episode() -> None:
    labels = manifest()["metadata"]["labels"]
    assert labels == {
        **pod_spec.MANAGED_BY,
        pod_spec.JOB_LABEL: "nightly",
        pod_spec.JOB_UID_LABEL: "u1",
        pod_spec.RUN_LABEL: OWNER.run,
        pod_spec.ROLE_LABEL: "agent",
        pod_spec.NETWORK_LABEL: "none",
        warm_spec.WARM_LABEL: "waiting",
    }
    assert pod_spec.EPISODE_ANNOTATION not in manifest()["metadata"]["annotations"]


@given(image=st.text(min_size=1, max_size=200), job=st.from_regex(r"[a-z0-9-]{1,63}"))
def test_every_name_is_a_dns_label_and_none_comes_twice(image: str, job: str) -> None:
    names = {manifest(image, job)["metadata"]["name"] for _ in range(2)}
    assert len(names) == 2
    for name in names:
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name), name


def test_a_claim_tests_first_and_leaves_the_labels_of_a_pod_made_for_the_episode() -> None:
    labels = dict(manifest()["metadata"]["labels"])
    pod = Pod(metadata=Metadata(uid="u2", labels=dict(labels)))
    first, second, *rest = warm_spec.claim_patch(pod, REQUEST, age_s=30.2)
    assert first == {"op": "test", "path": "/metadata/uid", "value": "u2"}
    assert (second["op"], second["value"]) == ("test", "waiting")
    for each in rest:
        key = each["path"].rpartition("/")[2].replace("~1", "/")
        if each["op"] == "remove":
            del labels[key]
        elif each["path"].startswith("/metadata/labels/"):
            labels[key] = str(each["value"])
    assert labels == pod_spec.pod_manifest(REQUEST, PodSandbox(), OWNER)["metadata"]["labels"]
    (deadline,) = [each for each in rest if each["path"] == "/spec/activeDeadlineSeconds"]
    assert deadline["value"] == 7231
    claimed = Pod(metadata=Metadata(uid="u2", labels=labels))
    assert warm_spec.is_claimed_by(claimed, REQUEST, OWNER)
    assert not warm_spec.is_claimed_by(pod, REQUEST, OWNER)


def request(sample: int, image: str = "a") -> SandboxRequest:
    return SandboxRequest(EpisodeId("job", "one", sample), Role.AGENT, image, "/")


def test_the_first_requests_come_first_within_both_limits() -> None:
    demand = warm_spec.WarmDemand()
    demand.expect([request(0), request(1), request(2), request(3, "b"), request(4, "c")])

    assert list(demand.missing({}, WarmPods(cap=3, per_image=2))) == ["a", "a", "b"]
    assert list(demand.missing({"a": 1}, WarmPods(cap=3, per_image=2))) == ["a", "b"]
    assert list(demand.missing({"z": 3}, WarmPods(cap=3, per_image=2))) == []


def test_a_request_that_was_made_needs_no_pod_until_it_is_no_longer_expected() -> None:
    demand = warm_spec.WarmDemand()
    demand.expect([request(0)])
    demand.fulfil(request(0))
    assert not demand

    demand.expect([request(0), request(1, "b")])
    assert demand.images == {"b": 1}

    demand.expect([])
    demand.expect([request(0)])
    assert demand.images == {"a": 1}
