"""RolloutJobs on a real cluster: applied, scaled, suspended, deleted, and with every fault.

The operator and the workers run in pods, from the image of this checkout, which the module's
fixture builds and installs. Every job has a small S3 server in its own namespace as its store.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
import yaml

from cluster.needs import TIER
from cluster.site import (
    OPERATOR,
    RJ,
    ROOT,
    SYSTEM,
    Json,
    Site,
    installed,
    job,
    kubectl,
    small,
    until,
)
from e2e.command import job_writer, printed_json, swe_rollout
from e2e.records import check, committed, read

pytestmark = TIER

PAIR = "sqlparse"
REPORTED_WITHIN_S = 60
"""From the worker's start to a reason in `kubectl describe`; seconds on an idle machine."""


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Run this checkout's operator, and create one namespace for the module's jobs."""
    with installed("rj-test") as found:
        yield found


@pytest.fixture(scope="module")
def row() -> Json:
    """Return a task as a row, for tests to make slow, greedy or impossible."""
    lines = swe_rollout("datasets", "rows", "release-pairs").stdout.splitlines()
    rows: list[Json] = [json.loads(line) for line in lines]
    return next(row for row in rows if PAIR in row["instance_id"])


def slow(row: Json, seconds: int) -> Json:
    """Return the task with tests that start only after a while."""
    return {**row, "test_cmd": [f"sleep {seconds}", *row["test_cmd"]]}


def outcomes(records: list[Json]) -> list[tuple[str, str, str, list[int]]]:
    """Return the fields that must not depend on where an episode ran."""
    return [
        (r["episode"], r["stop_reason"], r["verdict"]["status"], [t["index"] for t in r["turns"]])
        for r in records
    ]


def test_the_sample_applied_unchanged_ends_like_a_run_in_one_process(
    site: Site, tmp_path: Path
) -> None:
    sample: Json = yaml.safe_load(
        (ROOT / "manifests" / "samples" / "release-pairs.yaml").read_text()
    )
    # Two of the six pairs, so that the local run does not take longer than the rest of the module.
    sample["spec"]["dataset"] = {"releasePairs": {"names": ["semver", "sqlparse"]}}
    sample["metadata"]["name"] = "sample"
    scenarios = sample["spec"]["policy"]["scripted"]["scenarios"]
    local = job_writer(tmp_path, store=f"file://{tmp_path}/store")(
        names=["semver", "sqlparse"], scenarios=scenarios, limits=sample["spec"]["limits"]
    )

    site.apply(sample)
    here = printed_json(swe_rollout("run", str(local.path), "--name", "sample", "-o", "json"))
    status = site.until_complete("sample")

    counts = status["episodes"]
    assert (counts["total"], counts["committed"], counts["running"]) == (8, 8, 0)
    assert {key: counts[key] for key in ("resolved", "unresolved", "masked")} == {
        key: here[key] for key in ("resolved", "unresolved", "masked")
    }
    assert status["stopReasons"] == here["stop_reasons"]
    assert float(status["meanReward"]) == pytest.approx(here["mean_reward"], abs=0.005)
    there = site.records("sample")
    for record in there:
        check(record)
    assert outcomes(there) == outcomes(
        [read(path) for path in committed(tmp_path / "store" / "sample")]
    )
    assert "8/8" in site.kubectl("get", RJ, "sample")
    now = printed_json(swe_rollout("status", "s3://rollouts/sample", "-o", "json"))
    assert now == {key: value for key, value in here.items() if key != "run"}


@pytest.mark.slow
def test_scale_is_followed_live_and_deletion_leaves_nothing(site: Site, row: Json) -> None:
    tasks = site.put_rows("scaled", [slow(row, 20)])
    site.apply(job("scaled", ["wrong"] * 100, dataset=tasks, parallelism=4))

    def running(count: int, *, within_s: float) -> None:
        site.until(
            "scaled",
            lambda: site.status("scaled").get("episodes", {}).get("running") == count,
            within_s=within_s,
        )

    running(4, within_s=90)
    site.kubectl("scale", RJ, "scaled", "--replicas=16")
    running(16, within_s=45)
    until(
        lambda: len(site.sandboxes("scaled")) > 12,
        within_s=60,
        details=lambda: f"sandboxes: {site.sandboxes('scaled')}",
    )
    site.kubectl("scale", RJ, "scaled", "--replicas=2")
    _drains(site, "scaled", to=2)

    site.kubectl("delete", RJ, "scaled", "--timeout=60s")

    kinds = "pods,jobs,leases,serviceaccounts,roles,rolebindings"
    site.until_none(kinds, "swe-rollout.dev/job=scaled", within_s=60)
    named = [o["metadata"]["name"] for o in site.objects(f"{kinds},networkpolicies")]
    assert not [name for name in named if name.startswith("scaled")]


def _drains(site: Site, name: str, *, to: int) -> None:
    """Let running episodes end without successors until `count` are left."""
    time.sleep(10)
    before = set(site.sandboxes(name, "agent"))
    begun: set[str] = set()

    def drained() -> bool:
        begun.update(set(site.sandboxes(name, "agent")) - before)
        return bool(site.status(name)["episodes"]["running"] <= to)

    site.until(name, drained, within_s=240)
    # The status lags a little: the next few may have started by now.
    assert len(begun) <= 2 * to, begun


@pytest.mark.slow
def test_suspend_ends_the_sandboxes_and_resume_repeats_nothing(site: Site) -> None:
    site.apply(job("paused", ["gold", "wrong"] * 5, parallelism=2))
    site.until_committed("paused", 2)

    site.patch("paused", {"suspend": True})
    site.until_no_sandboxes("paused", within_s=30)
    site.until("paused", lambda: site.status("paused").get("state") == "Suspended", within_s=10)
    kept = site.stored("paused")
    assert 2 <= len(kept) < 10
    site.patch("paused", {"suspend": False})
    status = site.until_complete("paused")

    after = site.stored("paused")
    assert kept.items() <= after.items()
    assert len(after) == 10
    assert status["episodes"]["masked"] == 0
    attempts = [record["attempt"] for record in site.records("paused")]
    assert max(attempts) <= 2, "suspending used up tries"


@pytest.mark.slow
def test_operator_and_worker_killed_in_the_middle_lose_and_repeat_nothing(site: Site) -> None:
    site.apply(job("hit", ["gold", "wrong"] * 4))
    kept = site.until_committed("hit", 1)

    # Grace period 0 is SIGKILL, for both.
    now = ["--grace-period=0", "--force", "--wait=false"]
    kubectl("delete", "pod", "--namespace", SYSTEM, "--selector", OPERATOR, *now)
    (worker,) = site.workers("hit")
    site.kubectl("delete", "pod", worker["metadata"]["name"], *now)
    status = site.until_complete("hit")

    after = site.stored("hit")
    assert kept.items() <= after.items()
    assert len(after) == status["episodes"]["committed"] == status["episodes"]["total"] == 8
    assert status["episodes"]["masked"] == 0
    assert sorted(after) == sorted(
        f"hit/episodes/{r['episode'].removeprefix('hit/')}/trajectory.json.zst"
        for r in site.records("hit")
    )
    site.until_no_sandboxes("hit", within_s=20)


@pytest.mark.slow
@pytest.mark.threat(point=29)
def test_a_worker_that_is_deleted_in_its_first_second_ends_soon(site: Site, row: Json) -> None:
    tasks = site.put_rows("early", [slow(row, 20)])
    site.apply(job("early", ["wrong"] * 20, dataset=tasks))
    seen: set[str] = set()

    for after_s in (0.0, 0.4, 0.8, 1.5):
        name = _new_worker(site, "early", seen)
        time.sleep(after_s)
        site.kubectl("delete", "pod", name, "--wait=false")
        # The grace period is 60 s, and a signal that is lost costs nearly all of it. Not the end of
        # the object, which also waits for the Job's controller.
        site.until("early", partial(_is_over, site, name), within_s=30)

    site.kubectl("delete", RJ, "early", "--timeout=60s")


@pytest.mark.threat(point=29)
def test_a_deadline_of_seconds_ends_the_job_in_seconds(site: Site, row: Json) -> None:
    tasks = site.put_rows("short", [slow(row, 600)])
    site.apply(job("short", ["wrong"] * 20, dataset=tasks, activeDeadlineSeconds=3))

    site.until(
        "short",
        lambda: site.condition("short", "Failed").get("reason") == "DeadlineExceeded",
        within_s=120,
    )

    assert site.stored("short") == {}
    site.until_no_sandboxes("short", within_s=20)


@pytest.mark.threat(point=28)
def test_a_deleted_job_masks_none_of_the_episodes_that_it_interrupts(site: Site, row: Json) -> None:
    tasks = site.put_rows("halted", [slow(row, 20)])
    document = job("halted", ["wrong"] * 20, dataset=tasks, retry={"attempts": 1})
    site.apply(document)
    site.until("halted", lambda: len(site.sandboxes("halted")) >= 4, within_s=90)

    site.kubectl("delete", RJ, "halted")
    everything = "swe-rollout.dev/job=halted"
    site.until_none("pods", everything, within_s=60)

    assert [r["failure"] for r in site.records("halted") if r["failure"]] == []


def _is_over(site: Site, worker: str) -> bool:
    """Whether the worker's container has ended."""
    found = [p for p in site.workers("early") if p["metadata"]["name"] == worker]
    states = [p["status"]["containerStatuses"][0]["state"] for p in found]
    return all("terminated" in each for each in states)


def _new_worker(site: Site, name: str, seen: set[str]) -> str:
    """Wait until a worker runs that was not seen before, and return its pod."""

    def running() -> list[str]:
        pods = [p for p in site.workers(name) if p["status"].get("phase") == "Running"]
        return [n for p in pods if (n := p["metadata"]["name"]) not in seen]

    site.until(name, lambda: bool(running()), within_s=90)
    seen.update(found := running())
    return found[0]


def test_sandboxes_that_can_not_start_are_reported_with_reason_and_fix_and_never_reward_0(
    site: Site, row: Json
) -> None:
    nowhere = {"spec": {"nodeSelector": {"kubernetes.io/hostname": "no-such-node"}}}
    absent = {**row, "image": "swe-rollout/no-such-image:1"}
    cases: dict[str, tuple[Json, Json]] = {
        "ImageUnavailable": (absent, {"imagePullPolicy": "Never"}),
        "Unschedulable": (row, {"template": nowhere}),
    }
    for reason, (task, pod) in cases.items():
        site.apply(doomed(site, reason, task, pod))

    _check_reported(site, set(cases))
    for reason in cases:
        _masked(site, reason)


def test_the_last_job_of_a_namespace_takes_its_network_policy_along(site: Site) -> None:
    site.apply(job("last", ["empty"]))
    site.until_complete("last")
    assert site.objects("networkpolicies")

    site.kubectl("delete", RJ, "--all", "--timeout=60s")

    kinds = "networkpolicies,jobs,leases,roles,rolebindings"
    site.until_none(kinds, within_s=20)


def test_a_full_quota_is_reported_never_reward_0_and_its_sample_is_replaced(
    site: Site, row: Json
) -> None:
    # Room for the S3 server and one worker, and for no sandbox.
    site.kubectl("delete", RJ, "--all", "--timeout=60s")
    site.kubectl("create", "quota", "full", "--hard=pods=2")
    try:
        until(
            lambda: (
                site.kubectl("get", "quota", "full", "-o", "jsonpath={.status.used.pods}") == "1"
            ),
            within_s=60,
            details=lambda: site.kubectl("get", "quota,pods"),
        )
        site.apply(doomed(site, "QuotaExceeded", row, {}, refills=1))
        _check_reported(site, {"QuotaExceeded"})
        status = site.until_complete("quotaexceeded", within_s=180)
    finally:
        site.kubectl("delete", "quota", "full")
    records = site.records("quotaexceeded")
    samples = sorted(record["episode"].rpartition("/")[2] for record in records)
    assert samples == ["0", "1"]
    assert [record["reward"] for record in records] == [None, None]
    assert all(record["failure"]["message"] for record in records)
    assert status["failures"] == {"QuotaExceededError": 2}
    assert status["meanReward"] == ""
    counts = {key: status["episodes"][key] for key in ("total", "committed", "masked", "replaced")}
    assert counts == {"total": 2, "committed": 2, "masked": 2, "replaced": 1}


def doomed(site: Site, reason: str, task: Json, pod: Json, *, refills: int = 0) -> Json:
    """Build a job of one episode and one attempt, named after the reason why it fails."""
    name = reason.lower()
    return job(
        name,
        ["wrong"],
        dataset=site.put_rows(name, [task]),
        sandbox={"pod": {"resources": small("256Mi"), **pod}},
        retry={"attempts": 1, "refills": refills},
        failureBudget={"maxMaskedFraction": 1},
    )


def _check_reported(site: Site, reasons: set[str]) -> None:
    """Check that `kubectl describe` shows each job's reason soon after its worker's start."""
    waiting = set(reasons)

    def all_reported() -> bool:
        for reason in sorted(waiting):
            # `describe` splits the keys of a map into words: Out Of Memory Error.
            if reason in site.describe(reason.lower()).replace(" ", ""):
                waiting.discard(reason)
                took_s = (datetime.now(UTC) - _began(site, reason.lower())).total_seconds()
                assert took_s < REPORTED_WITHIN_S, f"{reason} was reported after {took_s:.0f} s"
        return not waiting

    until(all_reported, within_s=180, details=lambda: site.describe(min(waiting).lower()))


def _began(site: Site, name: str) -> datetime:
    """Return when the job's one worker started."""
    (worker,) = site.workers(name)
    (container,) = worker["status"]["containerStatuses"]
    state = container["state"]
    return datetime.fromisoformat(state.get("running", state.get("terminated"))["startedAt"])


def _masked(site: Site, reason: str) -> None:
    """Check that the episode is committed with its failure and without a reward."""
    status = site.until_complete(reason.lower(), within_s=60)

    (record,) = site.records(reason.lower())
    assert record["reward"] is None
    assert record["failure"]["type"] == f"{reason}Error"
    assert record["failure"]["message"]
    assert status["episodes"]["masked"] == 1
    assert status["failures"] == {f"{reason}Error": 1}
    assert status["meanReward"] == ""
