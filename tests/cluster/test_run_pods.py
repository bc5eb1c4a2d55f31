"""The main job with pods and a real S3 server: the same verdicts as local, each committed once."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.command import COMMAND, Job, job_writer, printed_json, started, swe_rollout
from e2e.records import check, read_bytes
from swe_rollout.store.bucket import Bucket
from swe_rollout.store.layout import parse_trajectory_key

pytestmark = pytest.mark.cluster
SCENARIOS = ["gold", "wrong", "malformed", "empty"]


@pytest.fixture
def job_file(tmp_path: Path) -> Callable[..., Job]:
    """A job whose store is the S3 server's, under a name of its own."""
    if "AWS_ENDPOINT_URL" not in os.environ or "KUBECONFIG" not in os.environ:
        pytest.skip("needs the dev cluster and the S3 server: run `make test-cluster`")
    return job_writer(tmp_path, store=f"s3://rollouts/{uuid.uuid4().hex[:8]}")


def stored(job: Job) -> dict[str, bytes]:
    """Every committed trajectory of the job, as the server holds it."""

    async def load() -> dict[str, bytes]:
        bucket = Bucket.open(job.store)
        keys = [key async for key in bucket.keys(f"{job.name}/episodes")]
        return {key: await bucket.get(key) for key in sorted(keys) if parse_trajectory_key(key)}

    return asyncio.run(load())


def outcomes(objects: dict[str, bytes]) -> list[tuple[str, str, str, list[int]]]:
    """The parts of a record that must not depend on where an episode ran."""
    records = map(read_bytes, objects.values())
    return [
        (r["episode"], r["stop_reason"], r["verdict"]["status"], [t["index"] for t in r["turns"]])
        for r in records
    ]


def test_pods_and_s3_give_the_verdicts_of_local_sandboxes(
    tmp_path: Path, job_file: Callable[..., Job]
) -> None:
    names = ["semver", "sqlparse"]
    job = job_file(names=names, scenarios=SCENARIOS)
    local = job_writer(tmp_path / "local", store=f"file://{tmp_path}/store")(
        names=names, scenarios=SCENARIOS
    )

    state = printed_json(swe_rollout("run", str(job.path), "--sandbox", "pod", "-o", "json"))
    here = printed_json(swe_rollout("run", str(local.path), "-o", "json"))

    assert state == here
    assert (state["committed"], state["masked"], state["resolved"]) == (8, 0, 4)
    now = printed_json(swe_rollout("status", job.uri, "-o", "json"))
    assert now == {key: value for key, value in state.items() if key != "run"}
    objects = stored(job)
    assert len(objects) == 8
    for data in objects.values():
        check(read_bytes(data))
    assert outcomes(objects) == outcomes(stored(local))
    assert _left_over(job.name) == ""


def test_sigkill_in_the_middle_loses_and_doubles_nothing(job_file: Callable[..., Job]) -> None:
    job = job_file(scenarios=["gold", "wrong", "gold", "empty"])
    command = [*COMMAND, "run", str(job.path), "--sandbox", "pod"]
    with started(command) as run:
        deadline = time.monotonic() + 120
        while not stored(job) and time.monotonic() < deadline and run.poll() is None:
            time.sleep(0.2)
    before = stored(job)

    state = printed_json(swe_rollout("run", str(job.path), "--sandbox", "pod", "-o", "json"))

    after = stored(job)
    assert before.items() <= after.items()
    assert (state["committed"], len(after), state["masked"]) == (4, 4, 0)
    assert _left_over(job.name) == ""


def _left_over(job: str) -> str:
    """Pods of the job that still exist after the grace period of those that are ending."""
    deadline = time.monotonic() + 20
    while pods := _pods_of(job):
        if time.monotonic() > deadline:
            return pods
        time.sleep(0.5)
    return ""


def _pods_of(job: str) -> str:
    done = subprocess.run(
        ["kubectl", "get", "pods", "-o", "name", "-l", f"swe-rollout.dev/job={job}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout
