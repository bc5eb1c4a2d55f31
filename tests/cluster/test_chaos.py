"""Jobs on the dev cluster whose worker or sandboxes are killed: `make chaos` tries everything."""

from __future__ import annotations

import json
import subprocess

import pytest

from checkout import ROOT
from cluster.needs import CLUSTER

pytestmark = [*CLUSTER, pytest.mark.slow]


def test_a_job_in_pods_that_is_killed_at_random_has_the_records_of_one_left_alone() -> None:
    size = ["--episodes", "4", "--turns", "8", "--parallelism", "4", "--workers", "2"]
    command = ["scripts/conformance", "crash_equal", "--pods", *size, "--every", "5", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    report = json.loads(done.stdout.splitlines()[-1])

    assert report["ok"], report["notes"]
    (row,) = report["rows"]
    assert row["committed"] == row["episodes"] == 4
    assert row["kills"] >= 1


def test_a_killed_or_rebooted_worker_and_killed_sandboxes_cost_a_turn_each() -> None:
    names = ["worker-killed", "worker-rebooted", "all-sandboxes-killed"]
    command = ["scripts/conformance", "chaos", "--only", *names, "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    report = json.loads(done.stdout.splitlines()[-1])

    assert report["ok"], report["notes"]
    assert [row["subject"] for row in report["rows"]] == names
    for row in report["rows"]:
        assert row["committed"] == row["episodes"]
        assert row["resumed"] >= 1
