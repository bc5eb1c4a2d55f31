"""`status`: of a job in a store, in every format, and of all jobs in the folder runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from unit.cli.cli_parts import run_cli, without_cluster
from unit.cli.store_parts import stored


@pytest.fixture(autouse=True)
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    without_cluster(monkeypatch, tmp_path)
    return stored(tmp_path)


def test_json_and_yaml_have_the_instances_that_the_table_shows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(monkeypatch, "status", "runs/demo") == 0
    head, row = capsys.readouterr().out.splitlines()
    cells = dict(
        zip(head.lower().replace("mean reward", "reward").split(), row.split(), strict=True)
    )

    assert run_cli(monkeypatch, "status", "runs/demo", "-o", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert run_cli(monkeypatch, "status", "runs/demo", "-o", "yaml") == 0
    assert yaml.safe_load(capsys.readouterr().out) == found

    (instance,) = found["instances"]
    for name in ("instance", "samples", "resolved", "turns", "tokens"):
        assert str(instance[name]) == cells[name]


def test_wide_adds_columns_and_name_leaves_the_names_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(monkeypatch, "status", "runs/demo", "-o", "wide") == 0
    assert "TURNS EACH" in capsys.readouterr().out
    assert run_cli(monkeypatch, "status", "runs/demo", "-o", "name") == 0
    assert capsys.readouterr().out == "a\n"


def test_without_a_cluster_the_jobs_of_the_folder_runs_are_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(monkeypatch, "status") == 0
    assert capsys.readouterr().out.split() == ["JOB", "DONE", "runs/demo", "2/2"]

    assert run_cli(monkeypatch, "status", "-o", "json") == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed == {"jobs": [{"job": "runs/demo", "committed": 2, "episodes": 2}]}


def test_without_a_cluster_and_without_runs_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")

    assert run_cli(monkeypatch, "status") == 0

    output = capsys.readouterr()
    assert output.out.split() == ["JOB", "DONE"]
    assert "no cluster is configured, and runs has no job" in output.err


def test_a_cluster_that_is_asked_for_is_not_replaced_by_the_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(monkeypatch, "status", "-n", "somewhere") == 3
    assert capsys.readouterr().out == ""
