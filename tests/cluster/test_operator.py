"""The operator on a real API server, as a local process, with workers of a stand-in image.

The stand-in sleeps until it is told how to exit, and the tests annotate its pods as real workers
would. So every situation can be made, including those that are rare with real workers. Jobs with
real workers are in `test_rolloutjob`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cluster.needs import TIER
from cluster.site import RJ, ROOT, Json, Site, install_crd, kubectl, small, until
from rollout_dev.images.archive import ImageConfig, layer_from_trees, write_archive
from rollout_operator.reconcile import COUNTS_INTERVAL_S
from rollout_operator.resources import POLICY_NAME, access_name

pytestmark = [
    *TIER,
    pytest.mark.usefixtures("operator"),
]

IMAGE = "swe-rollout/stand-in-worker:local"
SANDBOX = "swe-rollout/busybox:local"
STAND_IN = """#!/bin/sh
trap 'exit 143' TERM
while [ ! -f /tmp/exit ]; do sleep 0.2; done
exit "$(cat /tmp/exit)"
"""
OWNED = "pods,jobs,serviceaccounts,roles,rolebindings"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class LocalOperator:
    """The operator as a local process, for one namespace."""

    namespace: str
    log: Path
    health_port: int = field(default_factory=free_port)
    metrics_port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        name = ["--name", self.namespace, "--namespace", self.namespace]
        command = [sys.executable, "-m", "rollout_operator", *name]
        ports = ["--health-port", str(self.health_port), "--metrics-port", str(self.metrics_port)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *ports],
                env={**os.environ, "WORKER_IMAGE": IMAGE},
                stdout=log,
                stderr=log,
            )
        until(self.is_healthy, within_s=30, details=self.log.read_text)

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            assert self.process.wait(timeout=20) == 0, self.log.read_text()

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def is_healthy(self) -> bool:
        try:
            return "jobs" in self._get(self.health_port, "healthz")
        except OSError:
            return False

    def metric(self, name: str) -> float:
        lines = self._get(self.metrics_port, "metrics").splitlines()
        return next(float(line.split()[1]) for line in lines if line.split()[0] == name)

    @staticmethod
    def _get(port: int, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=5) as answer:
            body: bytes = answer.read()
            return body.decode()


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Build and load the stand-in: a waiting shell under the name of the workers' command."""
    folder = tmp_path_factory.mktemp("image")
    root = folder / "root"
    for each in ("bin", "tmp", "proc", "dev", "sys", "etc"):
        (root / each).mkdir(parents=True)
    program = shutil.which("busybox", path=f"{os.environ['PATH']}:/bin:/usr/bin")
    assert program is not None, "apt-get install busybox-static"
    shutil.copy(program, root / "bin" / "busybox")
    for applet in ("sh", "sleep", "cat", "echo"):
        (root / "bin" / applet).symlink_to("busybox")
    (root / "bin" / "swe-rollout").write_text(STAND_IN)
    (root / "bin" / "swe-rollout").chmod(0o755)
    layer = layer_from_trees({"/": root}, folder / "layer.tar")
    write_archive(IMAGE, [layer], ImageConfig(user="65532:65532"), folder / "image.tar")
    load = [str(ROOT / "scripts" / "dev-cluster"), "load-image", str(folder / "image.tar")]
    subprocess.run(load, check=True, capture_output=True)
    return IMAGE


@pytest.fixture(scope="module")
def site(image: str) -> Iterator[Site]:
    """Create a namespace for jobs that only our operator manages, whatever is installed."""
    assert image
    install_crd()
    rights = str(ROOT / "manifests/rbac/worker.yaml")
    kubectl("apply", "--server-side", "--force-conflicts", "--filename", rights)
    namespace = f"operator-test-{uuid.uuid4().hex[:6]}"
    kubectl("create", "namespace", namespace)
    yield Site(namespace)
    kubectl("delete", "namespace", namespace, "--wait=false", check=False)


@pytest.fixture(scope="module")
def operator(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOperator]:
    """Run one operator for the module; tests that kill it restart it."""
    running = LocalOperator(site.namespace, tmp_path_factory.mktemp("operator") / "log")
    running.start()
    yield running
    kubectl("delete", "rj", "--all", "--namespace", site.namespace, "--timeout=90s", check=False)
    running.stop()


@pytest.fixture
def name() -> str:
    return f"job-{uuid.uuid4().hex[:6]}"


def job(
    site: Site, name: str, *, count: int = 1, workers: Json | None = None, **spec: object
) -> Json:
    chosen = {"count": count, "image": IMAGE, "resources": small("32Mi"), **(workers or {})}
    return {
        "apiVersion": "swe-rollout.dev/v1alpha1",
        "kind": "RolloutJob",
        "metadata": {"name": name, "labels": {"swe-rollout.dev/operator": site.namespace}},
        "spec": {
            "dataset": {"releasePairs": {"names": ["sqlparse"]}},
            "policy": {"scripted": {}},
            "sandbox": {"pod": {}},
            "store": {"uri": "s3://rollouts"},
            "workers": chosen,
            **spec,
        },
    }


def running_workers(site: Site, name: str, count: int, *, since: Json | None = None) -> list[Json]:
    """Wait until so many workers run, besides `since`, and return their pods by index."""
    former = None if since is None else since["metadata"]["name"]

    def running() -> list[Json]:
        pods = [p for p in site.workers(name) if "deletionTimestamp" not in p["metadata"]]
        pods = [p for p in pods if p["metadata"]["name"] != former]
        return [p for p in pods if p["status"].get("phase") == "Running"]

    site.until(name, lambda: len(running()) == count, within_s=40)
    label = "batch.kubernetes.io/job-completion-index"
    return sorted(running(), key=lambda p: int(p["metadata"]["labels"][label]))


def running_workers_of(site: Site, name: str) -> list[Json]:
    """Wait for the one worker that the job owns, among pods that only look like it."""

    def owned() -> list[Json]:
        return [pod for pod in site.workers(name) if "ownerReferences" in pod["metadata"]]

    def is_running() -> bool:
        return [pod["status"].get("phase") for pod in owned()] == ["Running"]

    site.until(name, is_running, within_s=40)
    return owned()


def publish(site: Site, worker: Json, committed: int, **more: object) -> None:
    """Annotate the worker's pod with progress, as the worker would."""
    episodes = {"total": 10, "committed": committed, "unresolved": committed, "running": 2}
    progress = {"episodes": episodes, "rewardSum": 0.0, **more}
    note = f"swe-rollout.dev/progress={json.dumps(progress)}"
    site.kubectl("annotate", "--overwrite", "pod", worker["metadata"]["name"], note)


def exit_worker(site: Site, worker: Json, code: int, words: str = "") -> None:
    """Make the worker exit with this code and termination message."""
    script = 'echo "$2" >/dev/termination-log; echo "$1" >/tmp/exit'
    pod = worker["metadata"]["name"]
    site.kubectl("exec", pod, "--", "sh", "-c", script, "sh", str(code), words)


def uid(site: Site, name: str) -> str:
    """Return the job's uid."""
    return site.kubectl("get", "rj", name, "-o", "jsonpath={.metadata.uid}")


def account(site: Site, name: str) -> str:
    """Return the name of the service account of the job's workers."""
    return access_name(uid(site, name))


def sandbox(site: Site, name: str, *, owned: bool = True) -> str:
    """Start a sandbox of the job as its workers would, or a pod that only looks like one."""
    pod = f"{name}-sandbox-{uuid.uuid4().hex[:4]}"
    labels = f"swe-rollout.dev/job={name},swe-rollout.dev/role=agent"
    head = {"apiVersion": "swe-rollout.dev/v1alpha1", "kind": "RolloutJob", "name": name}
    owners = [{**head, "uid": uid(site, name)}] if owned else []
    spec = {"terminationGracePeriodSeconds": 1}
    overrides = json.dumps({"metadata": {"ownerReferences": owners}, "spec": spec})
    image = ["--image", SANDBOX, "--labels", labels, "--restart=Never"]
    site.kubectl("run", pod, *image, "--overrides", overrides, "--", "sleep", "1000")
    return pod


def until_status(site: Site, name: str, within_s: float = 60, **expected: object) -> Json:
    """Wait until the status has these fields and return it."""

    def matches() -> bool:
        status = site.status(name)
        return all(status.get(key) == value for key, value in expected.items())

    site.until(name, matches, within_s=within_s)
    return site.status(name)


def until_condition(
    site: Site, name: str, kind: str, status: str, *, reason: str, within_s: float = 60
) -> Json:
    """Wait until the condition has this status and reason, and return it."""

    def matches() -> bool:
        found = site.condition(name, kind)
        return (found.get("status"), found.get("reason")) == (status, reason)

    site.until(name, matches, within_s=within_s)
    return site.condition(name, kind)


def deleted(site: Site, name: str) -> None:
    """Delete the job and check that nothing of it is left."""
    site.kubectl("delete", "rj", name, "--timeout=60s")
    site.until_none(OWNED, f"swe-rollout.dev/job={name}", within_s=20)


def test_a_job_runs_completes_and_is_deleted(site: Site, name: str) -> None:
    site.apply(job(site, name, count=2))
    first, second = running_workers(site, name, 2)
    publish(site, first, 3)
    publish(site, second, 4, stopReasons={"submitted": 4}, rewardSum=2.0)

    status = until_status(site, name, progress="7/20", state="Running")

    assert status["episodes"]["running"] == 4
    assert status["meanReward"] == "0.29"
    assert (site.condition(name, "Accepted")["status"], status["policy"]) == ("True", "scripted")
    found = json.loads(site.kubectl("get", "rj", name, "-o", "json"))["metadata"]
    assert "finalizers" not in found, "deletion waits for nobody"
    assert not [key for key in found["annotations"] if "kopf" in key or "swe-rollout" in key]
    (policy,) = site.objects("networkpolicies")
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]

    publish(site, first, 10, finished=True)
    publish(site, second, 10, finished=True)
    exit_worker(site, first, 0)
    exit_worker(site, second, 0)
    status = until_status(site, name, state="Complete", progress="20/20")
    assert status["episodes"]["running"] == 0
    assert status["completionTime"] >= status["startTime"]
    assert "AllCommitted" in site.describe(name)
    deleted(site, name)
    site.until_none("networkpolicies", within_s=20)


def test_workers_can_do_what_they_need_and_not_more(site: Site, name: str) -> None:
    site.apply(job(site, name))
    running_workers(site, name, 1)
    worker = f"system:serviceaccount:{site.namespace}:{account(site, name)}"

    def may(*question: str) -> bool:
        said = site.kubectl("auth", "can-i", *question, "--as", worker, check=False)
        return said.strip() == "yes"

    assert may("create", "pods")
    assert may("create", "pods/exec")
    assert may("get", f"rolloutjobs.swe-rollout.dev/{name}")
    assert not may("create", "pods", "--namespace", "default")
    assert not may("get", "secrets")
    assert not may("create", "networkpolicies")
    assert not may("patch", f"rolloutjobs.swe-rollout.dev/{name}")
    deleted(site, name)


@pytest.mark.slow
def test_suspend_stops_everything_and_resume_continues(site: Site, name: str) -> None:
    site.apply(job(site, name))
    (worker,) = running_workers(site, name, 1)
    publish(site, worker, 5)
    until_status(site, name, progress="5/10")
    sandbox(site, name)

    site.patch(name, {"suspend": True})
    site.until_none("pods", f"swe-rollout.dev/job={name}", within_s=30)
    until_status(site, name, within_s=5, state="Suspended", progress="5/10")
    site.patch(name, {"suspend": False})
    (successor,) = running_workers(site, name, 1)

    assert successor["metadata"]["name"] != worker["metadata"]["name"]
    until_status(site, name, progress="5/10", state="Running")
    publish(site, successor, 6)
    until_status(site, name, progress="6/10")
    description = site.describe(name)
    assert "SuspendedBySpec" in description
    assert "NotSuspended" in description
    deleted(site, name)


def test_deletion_in_the_middle_leaves_nothing(site: Site, name: str) -> None:
    site.apply(job(site, name, count=2))
    running_workers(site, name, 2)
    sandbox(site, name)

    deleted(site, name)


@pytest.mark.slow
def test_a_lost_worker_is_replaced_and_counts_do_not_decrease(site: Site, name: str) -> None:
    site.apply(job(site, name, count=2))
    first, second = running_workers(site, name, 2)
    publish(site, first, 5)
    publish(site, second, 5)
    until_status(site, name, progress="10/20")
    seen: list[int] = []

    now = ["--grace-period=0", "--force", "--wait=false"]
    site.kubectl("delete", "pod", first["metadata"]["name"], *now)
    site.until(name, lambda: first["metadata"]["name"] not in str(site.workers(name)), within_s=20)
    publish(site, second, 6)
    replaced, _ = running_workers(site, name, 2)
    written: list[int] = []
    for committed, expected in ((0, 11), (5, 11), (7, 13)):
        publish(site, replaced, committed)
        # Longer than counts may wait to be written, so each progress is counted.
        began = time.monotonic()
        while (took_s := time.monotonic() - began) < 60:
            seen.append(site.status(name)["episodes"]["committed"])
            if took_s > COUNTS_INTERVAL_S + 2 and seen[-1] == expected:
                break
            time.sleep(0.5)
        written.append(seen[-1])

    assert written == [11, 11, 13]
    assert seen == sorted(seen)
    deleted(site, name)


@pytest.mark.slow
def test_a_killed_operator_resumes_and_its_jobs_run_on_meanwhile(
    site: Site, operator: LocalOperator, name: str
) -> None:
    site.apply(job(site, name, count=2))
    first, second = running_workers(site, name, 2)
    publish(site, first, 2)
    publish(site, second, 2)
    until_status(site, name, progress="4/20")

    operator.kill()
    publish(site, first, 10, finished=True)
    exit_worker(site, first, 0)
    site.kubectl("delete", "pod", second["metadata"]["name"], "--grace-period=1")
    operator.start()

    # The second share is unknown until its next worker has counted it.
    until_status(site, name, progress="10/20", state="Running")
    uid = site.objects("jobs", f"swe-rollout.dev/job={name}")[0]["metadata"]["uid"]
    (successor,) = running_workers(site, name, 1)
    publish(site, successor, 2)
    until_status(site, name, progress="12/20")
    publish(site, successor, 10, finished=True)
    exit_worker(site, successor, 0)
    until_status(site, name, progress="20/20", state="Complete")
    assert site.objects("jobs", f"swe-rollout.dev/job={name}")[0]["metadata"]["uid"] == uid


@pytest.mark.slow
@pytest.mark.threat(point=28)
def test_a_job_and_a_namespace_are_deleted_while_no_operator_runs(
    site: Site, operator: LocalOperator, name: str
) -> None:
    site.apply(job(site, name))
    running_workers(site, name, 1)
    sandbox(site, name)

    operator.kill()
    try:
        deleted(site, name)
        other = Site(f"{site.namespace}-{uuid.uuid4().hex[:4]}")
        kubectl("create", "namespace", other.namespace)
        other.apply(job(site, name))
        kubectl("delete", "namespace", other.namespace, "--timeout=60s")
    finally:
        operator.start()


def test_an_unmet_condition_of_a_worker_is_shown_by_describe_until_it_is_met(
    site: Site, name: str
) -> None:
    why = "no node takes pod x: 0/1 nodes. lower `sandbox.pod.resources`"
    unmet = {"condition": "SandboxesReady", "reason": "Unschedulable", "message": why}
    site.apply(job(site, name))
    (worker,) = running_workers(site, name, 1)

    publish(site, worker, 1, unmet=[unmet])
    found = until_condition(site, name, "SandboxesReady", "False", reason="Unschedulable")
    assert found["message"] == why

    def events() -> str:
        return site.kubectl("events", "--for", f"rolloutjob/{name}")

    # The event follows the status.
    until(
        lambda: any("Warning" in line and why in line for line in events().splitlines()),
        within_s=10,
        details=events,
    )
    publish(site, worker, 2)
    until_condition(site, name, "SandboxesReady", "True", reason="Ready")
    deleted(site, name)


@pytest.mark.parametrize(
    ("workers", "reason"),
    [
        ({"image": "swe-rollout/no-such-image:1"}, "WorkerImageUnavailable"),
        ({"nodeSelector": {"no-such": "node"}}, "WorkerUnschedulable"),
        ({"secrets": ["no-such-secret"]}, "WorkerStartFailed"),
    ],
)
def test_workers_that_do_not_start_have_a_reason_within_fifteen_seconds(
    site: Site, name: str, workers: Json, reason: str
) -> None:
    site.apply(job(site, name, workers=workers))

    found = until_condition(site, name, "SandboxesReady", "False", reason=reason, within_s=15)

    assert "spec.workers" in found["message"]
    assert reason in site.describe(name)
    deleted(site, name)


@pytest.mark.slow
def test_a_quota_that_refuses_workers_is_reported_until_it_is_raised(site: Site, name: str) -> None:
    site.kubectl("create", "quota", "none", "--hard=pods=0")
    try:
        site.apply(job(site, name))
        until_condition(site, name, "SandboxesReady", "False", reason="WorkerQuotaExceeded")
    finally:
        site.kubectl("delete", "quota", "none")

    (worker,) = running_workers(site, name, 1)
    publish(site, worker, 1)
    until_condition(site, name, "SandboxesReady", "True", reason="Ready")
    deleted(site, name)


def test_workers_that_spend_the_failure_budget_together_are_stopped(site: Site, name: str) -> None:
    site.apply(job(site, name, count=2))
    workers = running_workers(site, name, 2)
    sandbox(site, name)

    # No share alone is above a fifth of ten episodes.
    counts = {"total": 10, "committed": 5, "unresolved": 3, "masked": 2, "running": 2}
    for worker in workers:
        publish(site, worker, 5, episodes=counts, planned=20, maskedNow=2)

    found = until_condition(site, name, "Failed", "True", reason="BudgetSpent")
    assert "4 of 10 episodes of all workers were masked" in found["message"]
    assert "BudgetSpent" in site.describe(name)
    until(
        lambda: not site.workers(name) and not site.sandboxes(name),
        within_s=90,
        details=lambda: site.kubectl("get", "pods"),
    )
    until_status(site, name, state="Failed")
    deleted(site, name)


@pytest.mark.slow
def test_a_worker_that_fails_the_job_gives_the_message(site: Site, name: str) -> None:
    words = "the failure budget is spent: 9 of 10 episodes were masked. mend the cause"
    site.apply(job(site, name, count=2))
    first, second = running_workers(site, name, 2)
    publish(site, second, 4)
    sandbox(site, name)

    exit_worker(site, first, 78, words)

    found = until_condition(site, name, "Failed", "True", reason="WorkerFailed")
    assert found["message"] == words
    until_status(site, name, state="Failed")
    site.until_no_sandboxes(name, within_s=20)
    deleted(site, name)


@pytest.mark.slow
def test_drained_and_crashed_workers_are_replaced_and_a_crash_is_reported(
    site: Site, name: str
) -> None:
    site.apply(job(site, name))
    (worker,) = running_workers(site, name, 1)

    exit_worker(site, worker, 143)
    (successor,) = running_workers(site, name, 1, since=worker)
    exit_worker(site, successor, 1)

    until_condition(site, name, "SandboxesReady", "False", reason="WorkerCrashed")
    running_workers(site, name, 1, since=successor)
    until_status(site, name, state="Running")
    deleted(site, name)


def test_the_deadline_of_a_job_ends_it(site: Site, name: str) -> None:
    site.apply(job(site, name, activeDeadlineSeconds=600))
    running_workers(site, name, 1)

    site.patch(name, {"activeDeadlineSeconds": 3})

    found = until_condition(site, name, "Failed", "True", reason="DeadlineExceeded", within_s=30)
    assert "spec.activeDeadlineSeconds is 3" in found["message"]
    deleted(site, name)


def test_worker_pods_are_replaced_when_their_spec_changes(site: Site, name: str) -> None:
    site.apply(job(site, name))
    (worker,) = running_workers(site, name, 1)
    publish(site, worker, 5)
    until_status(site, name, progress="5/10")

    site.patch(name, {"workers": {"labels": {"team": "rl"}}})
    site.until(
        name,
        lambda: [p["metadata"]["labels"].get("team") for p in site.workers(name)] == ["rl"],
        within_s=30,
    )

    running_workers(site, name, 1)
    until_status(site, name, progress="5/10")
    deleted(site, name)


@pytest.mark.slow
def test_a_finished_job_is_deleted_after_its_time_to_live(site: Site, name: str) -> None:
    site.apply(job(site, name, ttlSecondsAfterFinished=4))
    (worker,) = running_workers(site, name, 1)
    publish(site, worker, 10, finished=True)
    exit_worker(site, worker, 0)

    until_status(site, name, state="Complete")
    site.until(name, lambda: not site.kubectl("get", "rj", name, "--ignore-not-found"), within_s=30)


def test_a_job_waits_for_its_queue(site: Site, name: str) -> None:
    site.apply(job(site, name, workers={"labels": {"kueue.x-k8s.io/queue-name": "team"}}))

    until_condition(site, name, "Suspended", "True", reason="Queued")
    until_status(site, name, state="Pending")
    # The queue admits the workers.
    site.kubectl("patch", "job", f"{name}-workers", "--patch", '{"spec":{"suspend":false}}')
    running_workers(site, name, 1)
    until_status(site, name, state="Running")
    deleted(site, name)


def test_a_spec_that_the_schema_can_not_reject_is_not_accepted_until_it_is_fixed(
    site: Site, name: str
) -> None:
    masked = {"sglang": {"url": "http://engine:30000", "record": {"samplingMask": True}}}
    site.apply(job(site, name, policy=masked))

    found = until_condition(site, name, "Accepted", "False", reason="InvalidSpec")

    assert "record.samplingMask needs sampling.topK" in found["message"]
    assert site.objects("jobs", f"swe-rollout.dev/job={name}") == []
    assert "InvalidSpec" in site.describe(name)
    site.kubectl("delete", "rj", name, "--timeout=60s")
    site.apply(job(site, name, policy=masked, sampling={"topK": 8}))
    until_condition(site, name, "Accepted", "True", reason="Valid")
    running_workers(site, name, 1)
    deleted(site, name)


@pytest.mark.threat(point=23)
def test_a_foreign_job_of_the_same_name_is_left_alone_and_reported(site: Site, name: str) -> None:
    site.kubectl("create", "job", f"{name}-workers", "--image", SANDBOX, "--", "sleep", "1000")
    site.apply(job(site, name))

    found = until_condition(site, name, "SandboxesReady", "False", reason="WorkerRefused")

    assert f"delete jobs/{name}-workers" in found["message"]
    site.kubectl("delete", "rj", name, "--timeout=60s")
    assert f"{name}-workers" in site.kubectl("get", "job", f"{name}-workers")
    site.kubectl("delete", "job", f"{name}-workers")


@pytest.fixture
def tenant(site: Site) -> Iterator[Callable[[Json], str]]:
    """Return an apply as an account of the namespace whose only right is `rolloutjobs`."""
    site.kubectl("create", "serviceaccount", "tenant")
    verbs = "--verb=create,get,list,watch,patch,update,delete"
    site.kubectl("create", "role", "tenant", verbs, f"--resource={RJ}")
    who = f"{site.namespace}:tenant"
    site.kubectl("create", "rolebinding", "tenant", "--role=tenant", f"--serviceaccount={who}")

    def apply(document: Json) -> str:
        known_as = ["--as", f"system:serviceaccount:{who}"]
        # Not `apply`, whose annotation bounds the size; refusals are an answer too.
        return site.kubectl(
            *("create", "--filename", "-", *known_as), stdin=json.dumps(document), check=False
        )

    yield apply
    for kind in ("serviceaccount", "role", "rolebinding"):
        site.kubectl("delete", kind, "tenant")


@pytest.mark.threat(point=23)
def test_a_job_never_takes_over_an_account_or_its_rights(
    site: Site, tenant: Callable[[Json], str], name: str
) -> None:
    foreign = f"{name}-worker"
    mighty = f"--serviceaccount={site.namespace}:{foreign}"
    kinds = "serviceaccounts,roles,rolebindings"
    site.kubectl("create", "serviceaccount", foreign)
    site.kubectl("create", "role", foreign, "--verb=get", "--resource=configmaps")
    site.kubectl("create", "rolebinding", foreign, "--clusterrole=cluster-admin", mighty)
    before = site.objects(kinds)

    tenant(job(site, name))
    (worker,) = running_workers(site, name, 1)

    used = worker["spec"]["serviceAccountName"]
    known_as = f"system:serviceaccount:{site.namespace}:{used}"
    assert used == account(site, name)
    may = site.kubectl("auth", "can-i", "get", "secrets", "--as", known_as, check=False)
    assert may.strip() == "no"
    deleted(site, name)
    after = site.objects(kinds)
    assert [each for each in after if each["metadata"]["name"] == foreign] == [
        each for each in before if each["metadata"]["name"] == foreign
    ]
    for kind in ("rolebinding", "role", "serviceaccount"):
        site.kubectl("delete", kind, foreign)


@pytest.mark.threat(point=23)
@pytest.mark.parametrize("kind", ["serviceaccount", "rolebinding"])
def test_a_foreign_object_of_the_accounts_name_is_a_condition_and_nothing_runs_on_it(
    site: Site, operator: LocalOperator, name: str, kind: str
) -> None:
    operator.kill()
    site.apply(job(site, name))
    taken = account(site, name)
    who = f"--serviceaccount={site.namespace}:default"
    more = {"serviceaccount": [], "rolebinding": ["--clusterrole=view", who]}[kind]
    site.kubectl("create", kind, taken, *more)
    before = site.kubectl("get", kind, taken, "-o", "json")
    operator.start()

    found = until_condition(site, name, "SandboxesReady", "False", reason="WorkerRefused")

    assert f"{kind}s/{taken} already exists" in found["message"]
    assert site.objects("jobs", f"swe-rollout.dev/job={name}") == []
    assert site.kubectl("get", kind, taken, "-o", "json") == before
    site.kubectl("delete", kind, taken)
    running_workers(site, name, 1)
    deleted(site, name)


@pytest.mark.threat(point=23)
def test_a_foreign_policy_of_the_name_is_left_alone_and_reported(site: Site, name: str) -> None:
    open_policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": POLICY_NAME},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{}]},
    }
    site.kubectl("delete", "rj", "--all", "--timeout=60s")
    site.until_none("networkpolicies", within_s=60)
    site.apply(open_policy)
    before = site.objects("networkpolicies")
    site.apply(job(site, name))

    found = until_condition(site, name, "SandboxesReady", "False", reason="WorkerRefused")

    assert f"networkpolicies/{POLICY_NAME} already exists" in found["message"]
    assert site.objects("jobs", f"swe-rollout.dev/job={name}") == []
    deleted(site, name)
    time.sleep(5)
    assert site.objects("networkpolicies") == before
    site.kubectl("delete", "networkpolicy", POLICY_NAME)


@pytest.mark.slow
@pytest.mark.threat(point=23)
def test_a_pod_that_only_carries_the_jobs_labels_is_not_deleted_with_its_sandboxes(
    site: Site, name: str
) -> None:
    site.apply(job(site, name))
    running_workers(site, name, 1)
    own, foreign = sandbox(site, name), sandbox(site, name, owned=False)

    site.patch(name, {"suspend": True})
    until_status(site, name, within_s=40, state="Suspended")

    pods = site.kubectl("get", "pods", "-o", "name")
    assert own not in pods
    assert foreign in pods
    site.kubectl("delete", "pod", foreign, "--grace-period=1")
    deleted(site, name)


@pytest.mark.threat(point=24)
def test_no_legal_object_keeps_the_operator_from_other_jobs(
    site: Site, operator: LocalOperator, tenant: Callable[[Json], str], name: str
) -> None:
    depth = 5000
    deep = '{"a":' * depth + "1" + "}" * depth
    nested = job(site, f"{name}-deep", agent={"with": "DEEP"})
    odd_pod = ["--image", SANDBOX, "--restart=Never", "--labels"]
    odd = f"swe-rollout.dev/role=worker,swe-rollout.dev/job={name}"
    site.kubectl(
        *("run", f"{name}-odd", *odd_pod),
        f"{odd},batch.kubernetes.io/job-completion-index=abc",
        *("--annotations", "swe-rollout.dev/progress={"),
        *("--", "sleep", "1000"),
    )

    tenant(job(site, f"{name}-eternal", ttlSecondsAfterFinished=10**12))
    tenant(job(site, f"{name}-endless", activeDeadlineSeconds=1e300))
    tenant(job(site, f"{name}-many", samples=10**12, parallelism=10**12))
    raw = f"/apis/swe-rollout.dev/v1alpha1/namespaces/{site.namespace}/rolloutjobs"
    site.kubectl(
        *("create", "--raw", raw, "--filename", "-"),
        stdin=json.dumps(nested).replace('"DEEP"', deep),
    )
    tenant(job(site, name))
    (worker,) = running_workers_of(site, name)
    publish(site, worker, 10, finished=True)
    exit_worker(site, worker, 0)

    until_status(site, name, state="Complete", within_s=30)
    # Python's own decoder gives up on the whole object.
    reasons = ["-o", "jsonpath={.status.conditions[*].reason}"]
    assert "InvalidSpec" in site.kubectl("get", "rj", f"{name}-deep", *reasons)
    assert operator.is_alive
    assert operator.is_healthy()
    operator.stop()
    operator.start()
    site.kubectl("delete", "pod", f"{name}-odd", "--grace-period=1")
    site.kubectl("delete", "rj", "--all", "--timeout=60s")


@pytest.mark.slow
@pytest.mark.threat(point=29)
def test_workers_that_exit_with_0_before_they_report_fail_the_job(site: Site, name: str) -> None:
    site.apply(job(site, name))
    (worker,) = running_workers(site, name, 1)

    exit_worker(site, worker, 0)

    found = until_condition(site, name, "Failed", "True", reason="WorkersEndedEarly", within_s=40)
    assert "spec.workers.image must be an image of swe-rollout" in found["message"]
    deleted(site, name)


@pytest.mark.slow
def test_status_is_written_at_most_every_two_seconds_and_only_when_it_changes(
    site: Site, operator: LocalOperator, name: str
) -> None:
    site.apply(job(site, name))
    (worker,) = running_workers(site, name, 1)
    written = "swe_rollout_status_writes_total"
    before, began = operator.metric(written), time.monotonic()

    for committed in range(1, 10):
        publish(site, worker, committed)
        time.sleep(0.5)
    until_status(site, name, progress="9/10")

    busy = operator.metric(written) - before
    assert 2 <= busy <= (time.monotonic() - began) / 2 + 1
    time.sleep(5)
    assert operator.metric(written) - before == busy
    deleted(site, name)
