"""The Helm chart on a cluster: installed, upgraded, removed, and for some namespaces only.

A release replaces whatever installation there is; the next module of tests installs its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from cluster.needs import TIER
from cluster.site import (
    RJ,
    ROOT,
    Json,
    Site,
    build_images,
    install,
    job,
    kubectl,
    opened,
    uninstall,
)
from rollout_dev.helm import HELMS, find_helm

pytestmark = TIER

CHART = ROOT / "charts" / "swe-rollout"
CRD = "rolloutjobs.swe-rollout.dev"
RELEASE = "rollouts"
OPERATOR = "swe-rollout-operator"
CLUSTER_WIDE = (
    "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings"
)


@dataclass(frozen=True)
class Release:
    """A release of the chart in a namespace of its own."""

    namespace: str
    image: str
    folder: Path
    program: Path

    def helm(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run Helm as nobody's: without repositories and plugins."""
        done = subprocess.run(
            [str(self.program), *arguments, "--namespace", self.namespace],
            capture_output=True,
            text=True,
            check=False,
            env={"HOME": str(self.folder), "PATH": "/usr/bin:/bin"}
            | {"KUBECONFIG": os.environ["KUBECONFIG"]},
        )
        assert not check or done.returncode == 0, f"helm {' '.join(arguments)}: {done.stderr}"
        return done

    def install(self, *options: str, values: Mapping[str, object] | None = None) -> None:
        repository, _, tag = self.image.rpartition(":")
        given = {"image": {"repository": repository, "tag": tag}, **(values or {})}
        path = self.folder / "values.yaml"
        path.write_text(yaml.safe_dump(given))
        waiting = ("--create-namespace", "--wait", "--timeout", "180s")
        self.helm("install", RELEASE, str(CHART), "--values", str(path), *waiting, *options)

    def upgrade(self, *sets: str) -> None:
        changed = [f"--set={each}" for each in sets]
        waiting = ("--reuse-values", "--wait", "--timeout", "180s")
        self.helm("upgrade", RELEASE, str(CHART), *changed, *waiting)

    def uninstall(self) -> None:
        self.helm("uninstall", RELEASE, "--wait", "--timeout", "120s")

    def container(self) -> Json:
        """The container of the operator's Deployment."""
        text = kubectl("get", "deployment", OPERATOR, "-n", self.namespace, "-o", "json")
        (found,) = json.loads(text)["spec"]["template"]["spec"]["containers"]
        container: Json = found
        return container

    def may(self, verb: str, kind: str, namespace: str = "") -> bool:
        """Whether the operator's account may do this in a namespace, or in all."""
        where = ["--namespace", namespace] if namespace else ["--all-namespaces"]
        account = f"system:serviceaccount:{self.namespace}:{OPERATOR}"
        found = kubectl("auth", "can-i", verb, kind, *where, "--as", account, check=False)
        return found.strip() == "yes"


@pytest.fixture(scope="module")
def image() -> str:
    """Build and load the images of worker and store; returns the worker's name."""
    return build_images("dev-s3")


@pytest.fixture(params=HELMS, ids="helm-{}".format)
def program(request: pytest.FixtureRequest) -> Path:
    """Helm of each major version."""
    found = find_helm(request.param)
    if found is None:
        pytest.skip(f"needs Helm {request.param} on PATH, or the one that `make helm` builds")
    return found


@pytest.fixture
def release(program: Path, image: str, tmp_path: Path) -> Iterator[Release]:
    """A release that is not installed yet, on a cluster without any installation."""
    uninstall("--yes")
    made = Release(f"rollout-ops-{uuid.uuid4().hex[:6]}", image, tmp_path, program)
    yield made
    made.helm("uninstall", RELEASE, "--wait", "--timeout", "120s", check=False)
    kubectl("delete", "crd", CRD, "--ignore-not-found", "--timeout=120s")
    kubectl("delete", "namespace", made.namespace, "--ignore-not-found", "--wait=false")


@contextmanager
def site() -> Iterator[Site]:
    """A namespace for jobs, with a store."""
    before = dict(os.environ)
    try:
        with opened(f"chart-test-{uuid.uuid4().hex[:6]}") as found:
            yield found
    finally:
        os.environ.clear()
        os.environ.update(before)


def cluster_wide() -> list[str]:
    """The names of our objects that belong to no namespace, but the definition."""
    names = kubectl("get", CLUSTER_WIDE, "-o", "name").split()
    return [name for name in names if "swe-rollout" in name]


def test_a_release_runs_jobs_is_upgraded_and_goes_without_them(release: Release) -> None:
    release.install()
    with site() as place:
        place.apply(job("first", ["gold", "wrong"]))
        status = place.until_complete("first")
        assert (status["episodes"]["resolved"], status["episodes"]["unresolved"]) == (1, 1)
        done = place.stored("first")
        assert release.may("create", "jobs", place.namespace)

        definition = release.helm("show", "crds", str(CHART)).stdout
        apply = ("apply", "--server-side", "--force-conflicts", "--filename", "-")
        kubectl(*apply, stdin=definition)
        release.upgrade("userCode=forbid", "resources.requests.cpu=60m")

        container = release.container()
        assert container["args"] == ["--user-code=forbid"]
        assert container["resources"]["requests"]["cpu"] == "60m"
        assert container["image"] == release.image  # of the values before
        place.apply(job("second", ["gold"]))
        own = job("third", ["gold"])
        own["spec"]["workers"]["image"] = "elsewhere/worker:1"
        place.apply(own)
        place.until_complete("second")
        place.until("third", lambda: "workers.image" in place.describe("third"), within_s=60)
        assert place.workers("third") == []

        release.helm("rollback", RELEASE, "1", "--wait", "--timeout", "180s")
        assert "args" not in release.container()

        release.uninstall()

        assert cluster_wide() == []
        assert kubectl("get", "deployments", "-n", release.namespace, "-o", "name") == ""
        assert kubectl("get", "crd", CRD, "-o", "name")
        kept = {each["metadata"]["name"]: each for each in place.objects(RJ)}
        assert kept.keys() == {"first", "second", "third"}
        assert kept["first"]["status"]["state"] == "Complete"
        assert place.stored("first") == done

        release.install()
        place.apply(job("fourth", ["empty"]))
        place.until_complete("fourth")
        assert place.stored("first") == done
        place.kubectl("delete", RJ, "--all", "--timeout=60s")
        place.until_none("jobs,rolebindings,networkpolicies", within_s=60)


def test_a_release_for_one_namespace_leaves_the_others_alone(release: Release) -> None:
    elsewhere = Site(f"chart-else-{uuid.uuid4().hex[:6]}")
    kubectl("create", "namespace", elsewhere.namespace)
    with site() as place:
        release.install(values={"watchNamespaces": [place.namespace]})
        elsewhere.apply(job("left-alone", ["gold"]))
        place.apply(job("managed", ["gold"]))

        place.until_complete("managed")

        assert elsewhere.status("left-alone") == {}
        assert elsewhere.objects("pods,jobs,serviceaccounts,networkpolicies,rolebindings") == [
            each for each in elsewhere.objects("serviceaccounts") if _is_default(each)
        ]
        for verb, kind in (("list", RJ), ("create", "jobs"), ("delete", "pods")):
            assert release.may(verb, kind, place.namespace)
            assert not release.may(verb, kind, elsewhere.namespace)
            assert not release.may(verb, kind)
        bound = json.loads(kubectl("get", "rolebindings", "--all-namespaces", "-o", "json"))
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": OPERATOR}
        assert [
            each["metadata"]["namespace"] for each in bound["items"] if each["roleRef"] == role
        ] == [place.namespace]

        release.upgrade(f"watchNamespaces={{{place.namespace},{elsewhere.namespace}}}")

        # It has no store there: what counts is that its operator has seen it.
        elsewhere.until("left-alone", lambda: elsewhere.status("left-alone") != {}, within_s=60)
        elsewhere.kubectl("delete", RJ, "--all", "--timeout=60s")
        kubectl("delete", "namespace", elsewhere.namespace, "--wait=false")


def _is_default(account: Json) -> bool:
    return bool(account["metadata"]["name"] == "default")


def test_a_release_takes_over_what_the_command_installed(release: Release) -> None:
    install(release.image)
    taken = replace(release, namespace="swe-rollout-system")

    taken.install("--take-ownership", *_by_force(taken))

    assert taken.container()["image"] == release.image
    taken.uninstall()
    assert cluster_wide() == []
    kubectl("delete", "namespace", "swe-rollout-system", "--timeout=60s")


def _by_force(release: Release) -> tuple[str, ...]:
    """From version 4 on Helm applies as the command does, on the server, which sees two owners."""
    version = release.helm("version", "--short").stdout
    return ("--force-conflicts",) if not version.startswith("v3.") else ()
