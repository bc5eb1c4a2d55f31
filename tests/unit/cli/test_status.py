"""`status`: of a job in a store, in every format, and of all jobs in the folder runs."""

from __future__ import annotations

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
    assert cli("status").out.split() == ["JOB", "DONE", "runs/demo", "2/2"]
    listed = {"jobs": [{"job": "runs/demo", "committed": 2, "episodes": 2}]}
    assert cli("status", "-o", "json").json == listed


def test_without_a_cluster_and_without_runs_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")

    done = cli("status")

    assert done.out.split() == ["JOB", "DONE"]
    assert "no cluster is configured, and runs has no job" in done.err


def test_a_cluster_that_is_asked_for_is_not_replaced_by_the_folder(cli: Cli) -> None:
    assert cli("status", "-n", "somewhere", code=3).out == ""
