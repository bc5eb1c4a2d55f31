"""`status`: of a job in a store, in every format, and of all jobs in the folder runs."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from unit.cli.cli_parts import Cli

pytestmark = pytest.mark.usefixtures("address")


def test_json_and_yaml_have_the_instances_that_the_table_shows(cli: Cli) -> None:
    head, row = cli("status", "runs/demo").out.splitlines()
    cells = dict(
        zip(head.lower().replace("mean reward", "reward").split(), row.split(), strict=True)
    )

    found = cli("status", "runs/demo", "-o", "json").json
    assert yaml.safe_load(cli("status", "runs/demo", "-o", "yaml").out) == found

    (instance,) = found["instances"]
    for name in ("instance", "samples", "resolved", "turns", "tokens"):
        assert str(instance[name]) == cells[name]


def test_wide_adds_columns_and_name_leaves_the_names_alone(cli: Cli) -> None:
    assert "TURNS EACH" in cli("status", "runs/demo", "-o", "wide").out
    assert cli("status", "runs/demo", "-o", "name").out == "a\n"


def test_without_a_cluster_the_jobs_of_the_folder_runs_are_listed(cli: Cli) -> None:
    assert cli("status").rows[1][:2] == ["runs/demo", "2/2"]
    assert cli("status", "-o", "json").json == cli("ls", "-o", "json").json


def test_without_a_cluster_and_without_runs_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")

    done = cli("status")

    assert done.out.split() == ["JOB", "DONE", "AGE"]
    assert "no cluster is configured, and runs has no job" in done.err


def test_a_cluster_that_is_asked_for_is_not_replaced_by_the_folder(cli: Cli) -> None:
    assert cli("status", "-n", "somewhere", code=3).out == ""


def test_the_jobs_of_a_store_are_listed_with_their_progress_and_age(
    cli: Cli, tmp_path: Path
) -> None:
    begun = datetime.now(UTC).timestamp() - 3 * 86_400 - 4 * 3600 - 60
    os.utime(tmp_path / "runs/demo/plan.json", (begun, begun))

    done = cli("ls", "runs")
    data = cli("ls", f"file://{tmp_path}/runs", "-o", "json").json

    assert done.rows == [["JOB", "DONE", "AGE"], ["runs/demo", "2/2", "3", "d", "4", "h"]]
    (job,) = data["jobs"]
    assert datetime.fromisoformat(job.pop("begun")).timestamp() == int(begun)
    assert job == {"job": "runs/demo", "committed": 2, "episodes": 2}


def test_a_job_whose_plan_is_damaged_hides_no_other(cli: Cli, tmp_path: Path) -> None:
    shutil.copytree(tmp_path / "runs/demo", tmp_path / "runs/other")
    (tmp_path / "runs/demo/plan.json").write_text("x{")

    done = cli("ls")

    assert done.rows[1:] == [["runs/demo", "–", "–"], ["runs/other", "2/2", *done.rows[2][2:]]]
    assert "runs/demo: " in done.err
    assert "plan.json can't be read" in done.err


def test_an_empty_store_says_what_starts_a_job(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a new").mkdir()

    done = cli("ls", "a new")

    assert "a new has no job yet: `swe-rollout run job.yaml --store 'a new'` starts one" in done.err
