"""Accounts that lack one right: the error names it, and the commands that it gives grant it.

The cluster's part of `tests/e2e/wrong_uses`. A person runs the command with a service account that
has all rights but one; for the operator and for workers, the role of the installation lacks one.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from cluster.needs import TIER
from cluster.site import RJ, Json, Site, build_images, install, job, kubectl, opened
from cluster.tenant import RBAC, account
from e2e.command import COMMAND

pytestmark = [
    *TIER,
    pytest.mark.slow,
]

GROUP = "swe-rollout.dev"
RIGHTS: dict[tuple[str, str], tuple[str, ...]] = {
    ("", "pods"): ("get", "list", "watch", "create", "patch", "delete", "deletecollection"),
    ("", "pods/exec"): ("get", "create"),
    ("", "events"): ("list",),
    ("networking.k8s.io", "networkpolicies"): ("get", "create"),
    (GROUP, "rolloutjobs"): ("get", "list", "watch", "create", "patch"),
}
"""By API group and resource: what `run` with pods, `status`, `watch` and `launch` need."""


@dataclass(frozen=True)
class Case:
    """What somebody does without a right."""

    lacks: tuple[str, ...]
    """Verbs on the resource."""
    resource: str
    run: str
    """The words after `swe-rollout`."""
    says: str
    """How the refusal names the right."""
    done: str
    """What the command prints when the right is granted."""


CASES = {
    "run-without-creating-pods": Case(
        ("create",), "pods", "run job.yaml", 'cannot create resource "pods"', "1 ran now"
    ),
    "run-without-exec": Case(
        ("get", "create"), "pods/exec", "run job.yaml", 'resource "pods/exec"', "1 ran now"
    ),
    "run-without-watching-pods": Case(
        ("watch",), "pods", "run job.yaml", 'cannot watch resource "pods"', "1 ran now"
    ),
    "status-without-reading-jobs": Case(
        ("get",), "rolloutjobs", "status held", 'cannot get resource "rolloutjobs"', "held"
    ),
    "launch-without-creating-jobs": Case(
        ("create",),
        "rolloutjobs",
        "launch job.yaml --detach --store s3://rollouts --set spec.suspend=true",
        'cannot create resource "rolloutjobs"',
        "follow it with",
    ),
}


@pytest.fixture(scope="module")
def image() -> str:
    """Build and load the images; returns the worker's name."""
    return build_images("dev-s3")


@pytest.fixture(scope="module")
def site(image: str) -> Iterator[Site]:
    """Run this checkout's operator, and create one namespace with a suspended job."""
    install(image)
    before = dict(os.environ)
    with opened(f"rights-test-{uuid.uuid4().hex[:6]}") as found:
        found.apply(job("held", ["gold"], suspend=True))
        yield found
    os.environ.clear()
    os.environ.update(before)


@contextmanager
def person(site: Site, name: str, case: Case) -> Iterator[Path]:
    """Make an account with all rights but the case's; yield its kubeconfig."""
    rules = [
        {
            "apiGroups": [group],
            "resources": [resource],
            "verbs": [v for v in verbs if resource != case.resource or v not in case.lacks],
        }
        for (group, resource), verbs in RIGHTS.items()
    ]
    role: Json = {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": {"name": name}}
    site.apply({**role, "rules": [rule for rule in rules if rule["verbs"]]})
    with account(site.namespace, name, role=f"Role/{name}") as acting:
        yield acting.kubeconfig


def command(words: Sequence[str], kubeconfig: Path, folder: Path) -> tuple[int, str]:
    """Run `swe-rollout` as the account; returns the exit code and all that it printed."""
    done = subprocess.run(
        [*COMMAND, *words],
        cwd=folder,
        env={**os.environ, "KUBECONFIG": str(kubeconfig), "COLUMNS": "1000"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def granted(said: str) -> None:
    """Do what an error says, as the administrator."""
    (line,) = set(re.findall(r"`(kubectl create role [^`]*)`", said))
    for each in line.split(" && "):
        kubectl(*each.split()[1:])


@pytest.mark.parametrize("name", CASES)
def test_a_person_without_a_right_is_told_which_and_the_cure_grants_it(
    name: str, site: Site, tmp_path: Path
) -> None:
    case = CASES[name]
    document = job(name[:40], ["gold"], store={"uri": "file://store"}, grading={"enabled": False})
    document["spec"]["sandbox"]["pod"]["namespace"] = site.namespace
    if "launch" in case.run:
        del document["spec"]["sandbox"]["pod"]["namespace"]
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(document))
    words = case.run.split()
    if words[0] != "run":
        words += ["-n", site.namespace]

    with person(site, name, case) as kubeconfig:
        for _ in case.lacks:
            code, said = command(words, kubeconfig, tmp_path)
            if code == 0:  # another version of Kubernetes asks for one verb of two
                break
            assert code == 3, said
            assert case.says in said
            assert f"{name}" in said  # whose right
            assert "Traceback" not in said
            granted(said)

        code, said = command(words, kubeconfig, tmp_path)

    assert code == 0, said
    assert case.done in said


def conditions(site: Site, name: str) -> str:
    """All that the job's conditions say; `describe` may break lines."""
    found = site.status(name).get("conditions", ())
    return "; ".join(str(each["message"]) for each in found)


def take_away(role: str, resource: str, verb: str) -> None:
    """Take a right out of an installed role, until `install` writes it again."""
    found = json.loads(kubectl("get", "clusterrole", role, "-o", "json"))
    for rule in found["rules"]:
        if resource in rule["resources"]:
            rule["verbs"].remove(verb)
    found["rules"] = [rule for rule in found["rules"] if rule["verbs"]]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(found, file)
        file.flush()
        kubectl("replace", "--filename", file.name)


def test_workers_without_a_right_end_their_job_with_its_name_and_never_reward_0(
    site: Site, image: str
) -> None:
    take_away("swe-rollout-worker", "pods/exec", "create")
    site.apply(job("no-exec", ["gold"]))
    site.until(
        "no-exec",
        lambda: site.status("no-exec").get("state") in ("Failed", "Complete"),
        within_s=120,
    )
    message = str(site.condition("no-exec", "Failed").get("message"))
    assert re.search(r'cannot (get|create) resource "pods/exec"', message), message
    assert "`swe-rollout install` prints again" in message
    assert site.records("no-exec") == []

    install(image)
    site.kubectl("delete", RJ, "no-exec", "--timeout=60s")
    site.apply(job("no-exec", ["gold"]))

    assert site.until_complete("no-exec")["episodes"]["resolved"] == 1


def test_an_operator_without_a_right_says_so_on_the_job_and_goes_on_when_it_has_it(
    site: Site, image: str
) -> None:
    take_away("swe-rollout-operator", "jobs", "create")
    site.apply(job("no-jobs", ["gold"]))
    site.until(
        "no-jobs",
        lambda: 'cannot create resource "jobs"' in conditions(site, "no-jobs"),
        within_s=120,
    )
    assert "`swe-rollout install` prints again" in conditions(site, "no-jobs")

    install(image)

    assert site.until_complete("no-jobs", within_s=300)["episodes"]["resolved"] == 1
