"""Workers of a RolloutJob as processes of this machine, on a real cluster and a real S3 server.

What the operator would make is made by hand: the job's object, and a pod for each worker to carry
its progress. The workers' image of the jobs does not exist, so that an operator which happens to
run in the cluster can't add workers of its own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cluster.needs import WITH_STORE
from cluster.site import RJ, ROOT, Json, Site, install_crd, kubectl, small, until
from cluster.site import job as job_of
from e2e.command import COMMAND, swe_rollout
from e2e.records import check
from swe_rollout.sandbox.session.bootstrap import ORPHAN_S

pytestmark = WITH_STORE

PAIR = "sqlparse"
UNRESOLVED = {"policy": {"scripted": {"scenarios": ["wrong"]}}}
"""A policy whose tests run once: a task that it resolved would run them again, blind."""
CARRIER = "swe-rollout/busybox:local"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Create a namespace for the module, with the CRD installed."""
    install_crd()
    found = Site(f"worker-test-{uuid.uuid4().hex[:6]}")
    kubectl("create", "namespace", found.namespace)
    yield found
    found.kubectl("delete", RJ, "--all", "--timeout=30s", check=False)
    kubectl("delete", "namespace", found.namespace, "--wait=false")


@pytest.fixture(scope="module")
def row() -> Json:
    """Return a task as a row, for tests to make slow or impossible."""
    rows = map(json.loads, swe_rollout("datasets", "rows", "release-pairs").stdout.splitlines())
    found: Json = next(row for row in rows if PAIR in row["instance_id"])
    return found


@dataclass
class Workers:
    """The worker processes of one job."""

    site: Site
    name: str
    count: int
    log: Path
    running: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, index: int, **env: str) -> subprocess.Popen[bytes]:
        """Start worker `index` as its pod would."""
        where = ["--namespace", self.site.namespace, "--job", self.name]
        with (self.log / f"worker-{index}.log").open("ab") as log:
            self.running[index] = subprocess.Popen(
                [*COMMAND, "worker", *where, "--pod-name", self.pod(index)],
                cwd=ROOT,
                env={**os.environ, "JOB_COMPLETION_INDEX": str(index), **env},
                stdout=log,
                stderr=log,
            )
        return self.running[index]

    def pod(self, index: int) -> str:
        """Return the name of the pod that carries the worker's progress."""
        return f"{self.name}-carrier-{index}"

    def progress(self, index: int = 0) -> Json:
        """Read the progress that the worker published; empty before the first time."""
        pod = json.loads(self.site.kubectl("get", "pod", self.pod(index), "-o", "json"))
        found: Json = json.loads(
            pod["metadata"].get("annotations", {}).get("swe-rollout.dev/progress", "{}")
        )
        return found

    def until_progress(self, true: Callable[[Json], bool], *, within_s: float) -> float:
        """Wait until the first worker's progress is `true` and return the seconds."""
        return until(
            lambda: bool(found := self.progress()) and true(found),
            within_s=within_s,
            details=self.words,
        )

    def until_no_pods(self, *, within_s: float) -> None:
        """Wait until the job has no sandbox pod any more, ended ones included."""
        mine = f"swe-rollout.dev/job={self.name},swe-rollout.dev/role in (agent,grader)"
        until(lambda: self.site.objects("pods", mine) == [], within_s=within_s, details=self.words)

    def words(self) -> str:
        """Return the logs and the progress of all workers."""
        logs = "\n".join(path.read_text() for path in sorted(self.log.glob("*.log")))
        return f"{logs}\n{[self.progress(index) for index in range(self.count)]}"


@contextmanager
def workers(site: Site, log: Path, spec: Json, *, name: str, count: int = 1) -> Iterator[Workers]:
    """Create the job and the pods that carry progress; kill remaining processes by their ids."""
    spec["workers"] = {"count": count, "image": "swe-rollout/none:0", "imagePullPolicy": "Never"}
    document = job_of(name, ["gold"])
    document["spec"] |= spec
    document["spec"]["store"] = {"uri": f"s3://rollouts/{site.namespace}"}
    site.apply(document)
    found = Workers(site, name, count, log)
    for index in range(count):
        run = ["run", found.pod(index), f"--image={CARRIER}", "--image-pull-policy=Never"]
        site.kubectl(*run, "--restart=Never", "--command", "--", "sleep", "900")
    try:
        yield found
    finally:
        for process in found.running.values():
            process.kill()
            process.wait()
        site.kubectl("delete", RJ, name, "--wait=false")
        carriers = [found.pod(index) for index in range(count)]
        site.kubectl("delete", "pod", *carriers, "--wait=false", "--grace-period=1")


def stored(job: Workers) -> dict[str, Json]:
    """Read the committed trajectories by episode."""
    folder = f"{job.site.namespace}/{job.name}"
    return {record["episode"]: record for record in job.site.records(folder)}


def slow(site: Site, row: Json, seconds: float) -> Json:
    """Store a dataset of one task whose tests start only after a while."""
    slowed = {**row, "test_cmd": [f"sleep {seconds:g}", *row["test_cmd"]]}
    return site.put_rows(f"{site.namespace}-{seconds:g}", [slowed])


def test_two_workers_share_a_job_and_publish_their_progress(site: Site, tmp_path: Path) -> None:
    scenarios = ["gold", "wrong", "empty"]
    spec: Json = {
        "dataset": {"releasePairs": {"names": [PAIR, "semver", "tomlkit"]}},
        "policy": {"scripted": {"scenarios": scenarios}},
        "samples": 3,
    }
    with workers(site, tmp_path, spec, name="shared", count=2) as pair:
        codes = [process.wait(180) for process in (pair.start(0), pair.start(1))]

        assert codes == [0, 0], pair.words()
        records = stored(pair)
        assert len(records) == 9
        for record in records.values():
            check(record)
        # Tasks 0 and 2 are the first worker's, task 1 is the second's.
        counts = [pair.progress(index)["episodes"] for index in (0, 1)]
        zeros = {"running": 0, "grading": 0, "tampered": 0, "unproven": 0, "masked": 0}
        zeros |= {"replaced": 0, "awaitingCache": 0}
        assert counts == [
            # What tomlkit's tests expect can be guessed: 1 in 526.
            {**zeros, "total": 6, "committed": 6, "resolved": 2, "unresolved": 4, "unproven": 1},
            {"total": 3, "committed": 3, "resolved": 1, "unresolved": 2, **zeros},
        ]
        assert [pair.progress(index)["rewardSum"] for index in (0, 1)] == [2.0, 1.0]
        assert all(pair.progress(index)["finished"] for index in (0, 1))
        pair.until_no_pods(within_s=20)


@pytest.mark.slow
def test_parallelism_is_followed_up_and_down_while_running(
    site: Site, row: Json, tmp_path: Path
) -> None:
    spec: Json = {"dataset": slow(site, row, 4), "samples": 24, "parallelism": 1, **UNRESOLVED}
    with workers(site, tmp_path, spec, name="scaled") as job:
        job.start(0)
        until(lambda: len(site.sandboxes("scaled")) == 1, within_s=30, details=job.words)

        site.kubectl("scale", RJ, "scaled", "--replicas=6")
        up_s = until(lambda: len(site.sandboxes("scaled")) == 6, within_s=10, details=job.words)
        job.until_progress(
            lambda progress: progress["episodes"]["running"] == 6, within_s=10 - min(up_s, 5)
        )
        site.kubectl("scale", RJ, "scaled", "--replicas=2")
        job.until_progress(lambda progress: progress["episodes"]["running"] <= 2, within_s=30)
        # A closed sandbox shows as ended a moment later, when its grader has started already.
        until(lambda: len(site.sandboxes("scaled")) <= 2, within_s=15, details=job.words)
        assert job.progress()["episodes"]["running"] <= 2
        site.kubectl("scale", RJ, "scaled", "--replicas=6")
        assert job.running[0].wait(120) == 0, job.words()
        assert len(stored(job)) == 24
        assert {record["attempt"] for record in stored(job).values()} == {1}


@pytest.mark.slow
def test_the_successor_of_a_killed_worker_repeats_nothing(
    site: Site, row: Json, tmp_path: Path
) -> None:
    spec: Json = {"dataset": slow(site, row, 8), "samples": 6, "parallelism": 2, **UNRESOLVED}
    with workers(site, tmp_path, spec, name="killed") as job:
        job.start(0)
        until(lambda: len(stored(job)) >= 2, within_s=60, details=job.words)
        time.sleep(4)  # the next ones are in their sandboxes
        job.running[0].send_signal(signal.SIGKILL)
        job.running[0].wait()
        before = stored(job)
        # Nobody reconnects to the sandboxes: they end although nobody is left to delete them.
        alone_s = ORPHAN_S + 30
        site.until_no_sandboxes("killed", within_s=alone_s)

        assert job.start(0).wait(120) == 0, job.words()

        after = stored(job)
        assert len(after) == 6
        assert before.items() <= after.items()
        assert job.progress()["episodes"]["committed"] == 6
        assert job.progress()["episodes"]["unresolved"] == 6
        job.until_no_pods(within_s=20)


@pytest.mark.slow
def test_suspend_ends_sandboxes_and_resume_continues(site: Site, row: Json, tmp_path: Path) -> None:
    spec: Json = {"dataset": slow(site, row, 3), "samples": 6, "parallelism": 3}
    with workers(site, tmp_path, spec, name="paused") as job:
        job.start(0)
        until(lambda: len(stored(job)) >= 1, within_s=60, details=job.words)

        site.patch("paused", {"suspend": True})

        job.until_no_pods(within_s=30)
        kept = stored(job)
        assert len(kept) < 6
        job.until_progress(lambda progress: progress["episodes"]["running"] == 0, within_s=10)
        assert job.running[0].poll() is None
        site.patch("paused", {"suspend": False})
        assert job.running[0].wait(90) == 0, job.words()
        assert kept.items() <= stored(job).items()
        assert job.progress()["episodes"]["committed"] == 6
        assert {record["failure"] for record in stored(job).values()} == {None}


@pytest.mark.slow
def test_a_worker_that_is_stopped_leaves_no_sandbox_and_publishes_its_progress(
    site: Site, row: Json, tmp_path: Path
) -> None:
    spec: Json = {"dataset": slow(site, row, 3), "samples": 8, "parallelism": 2}
    with workers(site, tmp_path, spec, name="drained") as job:
        job.start(0)
        until(lambda: len(stored(job)) >= 1, within_s=60, details=job.words)

        job.running[0].terminate()

        assert job.running[0].wait(120) == 143, job.words()
        progress = job.progress()
        assert not progress["finished"]
        assert progress["episodes"]["running"] == 0
        assert 1 <= progress["episodes"]["committed"] == len(stored(job)) < 8
        job.until_no_pods(within_s=10)


def test_an_image_that_does_not_exist_is_reported_within_seconds_and_masks_the_episode(
    site: Site, row: Json, tmp_path: Path
) -> None:
    absent = {**row, "image": "swe-rollout/absent:0"}
    spec: Json = {
        "dataset": site.put_rows(f"{site.namespace}-absent", [absent]),
        "sandbox": {"pod": {"resources": small("64Mi"), "imagePullPolicy": "Never"}},
    }
    with workers(site, tmp_path, spec, name="absent") as job:
        job.start(0)
        job.until_progress(lambda progress: bool(progress["unmet"]), within_s=15)
        (unmet,) = job.progress()["unmet"]
        assert (unmet["condition"], unmet["reason"]) == ("SandboxesReady", "ImageUnavailable")
        assert "imagePullPolicy" in unmet["message"]
        assert job.running[0].wait(60) == 0
        (record,) = stored(job).values()
        assert record["failure"]["type"] == "ImageUnavailableError"
        assert record["reward"] is None
        assert job.progress()["failures"] == {"ImageUnavailableError": 1}


@pytest.mark.slow
def test_a_template_adds_to_the_pods_and_they_belong_to_the_job(
    site: Site, row: Json, tmp_path: Path
) -> None:
    template: Json = {
        "metadata": {"labels": {"team": "rl"}},
        "spec": {
            "tolerations": [{"key": "rl", "operator": "Exists"}],
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "containers": [{"name": "sandbox", "resources": {"limits": {"cpu": "1"}}}],
        },
    }
    spec: Json = {
        "dataset": slow(site, row, 5),
        "sandbox": {"pod": {"resources": small("256Mi"), "template": template}},
    }
    with workers(site, tmp_path, spec, name="dressed") as job:
        job.start(0)
        mine = "swe-rollout.dev/job=dressed,team=rl"
        until(lambda: site.objects("pods", mine) != [], within_s=30, details=job.words)
        pod = site.objects("pods", mine)[0]
        uid = json.loads(site.kubectl("get", RJ, "dressed", "-o", "json"))["metadata"]["uid"]
        assert [owner["uid"] for owner in pod["metadata"]["ownerReferences"]] == [uid]
        assert pod["spec"]["nodeSelector"] == {"kubernetes.io/os": "linux"}
        assert {"rl", "node.kubernetes.io/not-ready"} <= {
            toleration.get("key") for toleration in pod["spec"]["tolerations"]
        }
        container, _grader = pod["spec"]["containers"]
        limits = container["resources"]["limits"]
        assert limits == {"cpu": "1", "memory": "256Mi", "ephemeral-storage": "64Mi"}
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert job.running[0].wait(60) == 0
