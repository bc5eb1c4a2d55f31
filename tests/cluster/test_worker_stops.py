"""Workers that are stopped at every moment of their start: the job goes on, without growing delays.

Real workers, whose episodes wait for sandboxes that no node takes, or for a store and an engine
that are not there. Each round stops all of them, each one another moment after it has started.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator

import pytest

from cluster.needs import TIER
from cluster.site import Json, Site, installed, job, small
from swe_rollout.datasets.swebench_row import to_row
from swe_rollout.spec.worker_exits import FATAL
from unit.worker.work_parts import TASK

pytestmark = TIER
START_S = 15.0
"""The moments are spread over this: on a busy node, a worker is at work after it."""
IGNORED = "batch.kubernetes.io/job-index-ignored-failure-count"
NO_NODE = {"spec": {"nodeSelector": {"none": "has-this"}}}
NOWHERE = {"pod": {"resources": small("64Mi"), "template": NO_NODE}}
NOTHING_THERE = {"sglang": {"url": "http://10.255.255.1:30000"}, "tokenizer": "tiny"}
SECRET: Json = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "gone", "labels": {"swe-rollout.dev/allow-workers": "true"}},
    "stringData": {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_REGION": "x"}
    | {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"},
}


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with installed("stops") as found:
        yield found


@pytest.mark.threat(point=29)
@pytest.mark.parametrize(
    ("workers", "rounds"),
    [(4, 2), pytest.param(10, 10, marks=pytest.mark.slow)],
    ids=["8 times", "100 times"],
)
@pytest.mark.parametrize("lives", [True, False], ids=["with", "without"])
def test_a_worker_may_be_stopped_at_any_moment(
    site: Site,
    workers: int,
    rounds: int,
    lives: bool,  # noqa: FBT001 - pytest's parameter
) -> None:
    name = f"{'with' if lives else 'without'}-{workers}"
    # Episodes that no node takes are masked, until far more than can be in this time are.
    spec: dict[str, object] = {"sandbox": NOWHERE, "failureBudget": {"maxMaskedFraction": 1}}
    secret = "dev-s3"
    if not lives:
        site.apply(SECRET)
        spec["policy"], secret = NOTHING_THERE, "gone"
    spec["workers"] = {"count": workers, "secrets": [secret], "resources": small("1Gi")}
    # Workers share tasks, each of which all samples of a group belong to.
    tasks = [{**to_row(TASK), "instance_id": f"task-{n}"} for n in range(20 * workers)]
    dataset = site.put_rows(name, tasks)
    site.apply(job(name, ["gold"], samples=100, dataset=dataset, **spec))
    try:
        stopped: set[str] = set()
        for number in range(rounds):
            pods = _until_started(site, name, workers, stopped)
            stopped |= {each["metadata"]["uid"] for each in pods}
            moments = [(START_S * (i + number / rounds) / workers) for i in range(workers)]
            _stop(site, pods, moments)
        last = _until_started(site, name, workers, stopped)
    finally:
        site.kubectl("delete", "rj", name, "--timeout=90s", check=False)
    # A worker that had reported was followed by one that waited for 10 s; each before adds one.
    counts = [int(each["metadata"]["annotations"].get(IGNORED, 0)) for each in last]
    assert sum(counts) < workers * rounds / 2, counts


def _until_started(site: Site, name: str, count: int, stopped: set[str]) -> list[Json]:
    """Wait for a new running pod of every index; fail as soon as the job has failed."""

    def started() -> list[Json]:
        return [
            pod
            for pod in site.workers(name)
            if pod["metadata"]["uid"] not in stopped
            and any(
                "running" in each["state"] for each in pod["status"].get("containerStatuses", [])
            )
        ]

    def is_over_or_started() -> bool:
        return site.status(name).get("state") == "Failed" or len(started()) == count

    site.until(name, is_over_or_started, within_s=600)
    assert site.status(name).get("state") != "Failed", site.describe(name)
    return started()


def _stop(site: Site, pods: list[Json], moments: list[float]) -> None:
    """Delete each pod its moment after now; fail on an end that would fail the job."""
    codes: dict[str, int] = {}

    def hold(pod: str, field: str) -> None:
        patch = json.dumps({"metadata": {field: ["swe-rollout.dev/test"]}})
        site.kubectl("patch", "pod", pod, "--type", "strategic", "--patch", patch)

    def stop(pod: str, moment_s: float) -> None:
        hold(pod, "finalizers")
        time.sleep(moment_s)
        site.kubectl("delete", "pod", pod, "--wait=false")
        state = "{.status.containerStatuses[0].state.terminated.exitCode}"
        until_ended = ("--for", "jsonpath=" + state, "--timeout=120s")
        site.kubectl("wait", "pod", pod, *until_ended)
        codes[pod] = int(site.kubectl("get", "pod", pod, "-o", f"jsonpath={state}"))
        hold(pod, "$deleteFromPrimitiveList/finalizers")

    threads = [
        threading.Thread(target=stop, args=(pod["metadata"]["name"], moment))
        for pod, moment in zip(pods, moments, strict=True)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(codes) == len(pods)
    assert not [code for code in codes.values() if code in FATAL], codes
