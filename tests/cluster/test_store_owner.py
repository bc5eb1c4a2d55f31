"""Whose job it is: namespaces with jobs of one name, and a job that comes back and grows.

Worker processes of this machine on a real cluster and a real S3 server, as in `test_worker`.
"""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cluster.needs import WITH_STORE
from cluster.site import RJ, ROOT, Json, Site, install_crd, job, kubectl
from e2e.command import COMMAND, swe_rollout
from swe_rollout import open_store

pytestmark = WITH_STORE

CARRIER = "swe-rollout/busybox:local"


@pytest.fixture
def sites() -> Iterator[tuple[Site, Site]]:
    """Create two namespaces, with the CRD installed."""
    install_crd()
    found = tuple(Site(f"owner-{each}-{uuid.uuid4().hex[:6]}") for each in "ab")
    for site in found:
        kubectl("create", "namespace", site.namespace)
        run = ["run", "carrier", f"--image={CARRIER}", "--image-pull-policy=Never"]
        site.kubectl(*run, "--restart=Never", "--command", "--", "sleep", "900")
    yield found[0], found[1]
    for site in found:
        site.kubectl("delete", RJ, "--all", "--timeout=30s", check=False)
        kubectl("delete", "namespace", site.namespace, "--wait=false")


@contextmanager
def created(site: Site, document: Json) -> Iterator[None]:
    site.apply(document)
    try:
        yield
    finally:
        site.kubectl("delete", RJ, document["metadata"]["name"], "--timeout=30s")


def work(site: Site, name: str) -> subprocess.CompletedProcess[str]:
    """Run the one worker of a job to its end, as its pod would."""
    where = ["--namespace", site.namespace, "--job", name, "--pod-name", "carrier"]
    return subprocess.run(
        [*COMMAND, "worker", *where],
        cwd=ROOT,
        env={**os.environ, "JOB_COMPLETION_INDEX": "0"},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.threat(point=27)
@pytest.mark.threat(point=20)
def test_a_job_belongs_to_its_namespace_and_grows_when_it_comes_back(
    sites: tuple[Site, Site],
) -> None:
    mine, other = sites
    name, store = "shared", f"s3://rollouts/owner-{uuid.uuid4().hex[:8]}"
    document = job(name, ["gold"], store={"uri": store}, samples=1)
    document["spec"]["workers"] = {"count": 1, "image": "swe-rollout/none:0"}
    larger = {**document, "spec": {**document["spec"], "samples": 3}}

    with created(mine, document):
        first = work(mine, name)
    assert first.returncode == 0, first.stderr
    with created(other, document):
        refused = work(other, name)
    with created(mine, larger):
        second = work(mine, name)

    assert refused.returncode == 1
    assert f"belongs to a job of namespace {mine.namespace} of cluster" in refused.stderr
    assert f"this job is of namespace {other.namespace}" in refused.stderr
    assert f"delete {store}/{name}/owner.json" in refused.stderr
    assert second.returncode == 0, second.stderr
    assert "grows from 1 to 3 episodes" in second.stderr
    summary = open_store(store).job(name).summary()
    assert (summary.episodes, summary.committed, summary.resolved) == (3, 3, 3)
    here = swe_rollout("status", f"{store}/{name}", "-o", "json")
    assert json.loads(here.stdout)["committed"] == 3
