"""Ways out: `uninstall` with `kubectl delete`, and `kubectl delete -k manifests/`.

The operator runs in a pod, from the image of this checkout. These tests remove it from the whole
cluster; the next module installs it again.
"""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Iterator

import pytest

from cluster.needs import TIER
from cluster.site import (
    RJ,
    ROOT,
    SYSTEM,
    Json,
    Site,
    build_images,
    install,
    kubectl,
    small,
    uninstall,
    until,
)
from e2e.command import swe_rollout

pytestmark = [
    *TIER,
    pytest.mark.threat(point=28),
]

CRD = "rolloutjobs.swe-rollout.dev"
HOLD = "example.com/hold"


@pytest.fixture(scope="module")
def image() -> str:
    """Build and load the workers' image; returns its name."""
    return build_images()


@pytest.fixture
def site(image: str) -> Iterator[Site]:
    """Install, and create a namespace with one job whose worker waits for a node."""
    install(image)
    found = Site(f"uninstall-test-{uuid.uuid4().hex[:6]}")
    kubectl("create", "namespace", found.namespace)
    found.apply(job())
    found.until("waiting", lambda: len(found.workers("waiting")) == 1, within_s=60)
    yield found
    hold(found, held=False)
    kubectl("delete", "namespace", found.namespace, "--wait=false")


def job() -> Json:
    workers = {"nodeSelector": {"no-such": "node"}, "resources": small("32Mi")}
    return {
        "apiVersion": "swe-rollout.dev/v1alpha1",
        "kind": "RolloutJob",
        "metadata": {"name": "waiting"},
        "spec": {
            "dataset": {"releasePairs": {"names": ["sqlparse"]}},
            "policy": {"scripted": {}},
            "sandbox": {"pod": {}},
            "store": {"uri": "s3://rollouts"},
            "workers": workers,
        },
    }


def hold(site: Site, *, held: bool) -> None:
    """Add a finalizer of somebody else to the job, or remove it."""
    patch = json.dumps({"metadata": {"finalizers": [HOLD] if held else []}})
    site.kubectl("patch", RJ, "waiting", "--type=merge", "--patch", patch, check=False)


def failing(*arguments: str, code: int) -> subprocess.CompletedProcess[str]:
    """Run a command that ends with this exit code."""
    done = swe_rollout(*arguments, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def exists(kind: str, name: str) -> bool:
    return bool(kubectl("get", kind, name, "--ignore-not-found"))


def owned(site: Site) -> list[Json]:
    kinds = "pods,jobs,serviceaccounts,rolebindings"
    return site.objects(kinds, "swe-rollout.dev/job=waiting")


def test_uninstall_asks_first_then_removes_everything_and_may_be_repeated(site: Site) -> None:
    refused = failing("uninstall", code=2)
    assert "would be deleted" in refused.stderr
    assert "--yes" in refused.stderr
    assert exists("crd", CRD)
    assert len(site.workers("waiting")) == 1

    notes = uninstall("--yes")

    assert "rolloutjob/waiting" in notes
    assert "waiting until they are gone" in notes
    assert not exists("crd", CRD)
    assert not exists("namespace", SYSTEM)
    left = kubectl("get", "clusterroles,clusterrolebindings", "-o", "name")
    assert "swe-rollout-" not in left
    assert "swe-rollout-" not in kubectl("get", "validatingadmissionpolicies", "-o", "name")
    assert owned(site) == []
    assert site.objects("networkpolicies") == []
    uninstall()


@pytest.mark.slow
def test_jobs_may_stay_and_go_on_with_the_next_operator(site: Site, image: str) -> None:
    before = {each["metadata"]["uid"] for each in owned(site)}

    uninstall("--keep-jobs")

    assert not exists("namespace", SYSTEM)
    assert {each["metadata"]["uid"] for each in owned(site)} == before
    install(image)
    site.patch("waiting", {"suspend": True})
    site.until("waiting", lambda: site.workers("waiting") == [], within_s=60)


@pytest.mark.slow
def test_kubectl_deletes_the_manifests_with_jobs_present(site: Site) -> None:
    kubectl("delete", "-k", str(ROOT / "manifests"), "--timeout=90s")

    assert not exists("crd", CRD)
    until(lambda: owned(site) == [], within_s=60, details=lambda: str(owned(site)))


@pytest.mark.slow
def test_a_job_that_somebody_holds_is_named_and_nothing_is_printed(site: Site) -> None:
    hold(site, held=True)

    stuck = failing("uninstall", "--yes", "--timeout", "4", code=3)
    assert f"{site.namespace}/waiting (waits for {HOLD})" in stuck.stderr
    assert stuck.stdout == ""
