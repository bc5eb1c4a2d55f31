"""Environment variables of options: flag before variable before file, and none for secrets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from swe_rollout.spec.load import load_job
from swe_rollout.spec.template import template
from unit.cli.cli_parts import run_cli, without_cluster
from unit.cli.store_parts import stored


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    stored(tmp_path)
    without_cluster(monkeypatch, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_variable_stands_for_an_option_and_the_option_comes_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    del folder
    monkeypatch.setenv("SWE_ROLLOUT_STATUS_OUTPUT", "json")
    assert run_cli(monkeypatch, "status", "runs/demo") == 0
    assert json.loads(capsys.readouterr().out)["committed"] == 2

    assert run_cli(monkeypatch, "status", "runs/demo", "-o", "yaml") == 0
    assert "committed: 2" in capsys.readouterr().out

    monkeypatch.setenv("SWE_ROLLOUT_STATUS_OUTPUT", "")
    assert run_cli(monkeypatch, "status", "runs/demo") == 0
    assert capsys.readouterr().out.startswith("INSTANCE")


def test_a_variable_comes_before_the_job_file_and_may_hold_several_values(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = template().replace("samples: 4", "samples: 5")
    (folder / "job.yaml").write_text(text)
    assert load_job(folder / "job.yaml").spec.samples == 5
    given = "spec.samples=none spec.limits.turns=none"
    monkeypatch.setenv("SWE_ROLLOUT_RUN_SET", given)

    assert run_cli(monkeypatch, "run", "job.yaml") == 2

    said = capsys.readouterr().err
    assert "--set spec.samples: expected an integer, found 'none'" in said
    assert "--set spec.limits.turns: expected an integer" in said

    assert run_cli(monkeypatch, "run", "job.yaml", "--set", "spec.parallelism=none") == 2
    said = capsys.readouterr().err
    assert "spec.parallelism" in said
    assert "spec.samples" not in said


def test_a_flag_and_the_options_in_front_of_the_verb_have_variables(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    del folder
    monkeypatch.setenv("SWE_ROLLOUT_VERBOSE", "two")
    assert run_cli(monkeypatch, "status", "runs/demo") == 2
    assert "$SWE_ROLLOUT_VERBOSE" in capsys.readouterr().err

    monkeypatch.setenv("SWE_ROLLOUT_VERBOSE", "2")
    monkeypatch.setenv("SWE_ROLLOUT_EXPORT_OVERWRITE", "1")
    monkeypatch.setenv("SWE_ROLLOUT_EXPORT_TO", "json")
    assert [run_cli(monkeypatch, "export", "runs/demo") for _ in range(2)] == [0, 0]


def test_a_wrong_variable_is_named_and_an_unknown_one_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    del folder
    monkeypatch.setenv("SWE_ROLLOUT_STATUS_OUPUT", "json")
    assert run_cli(monkeypatch, "status", "runs/demo") == 0
    assert capsys.readouterr().err.startswith(
        "the variable SWE_ROLLOUT_STATUS_OUPUT stands for no option; "
        "did you mean SWE_ROLLOUT_STATUS_OUTPUT?\n"
    )

    monkeypatch.setenv("SWE_ROLLOUT_STATUS_OUTPUT", "csv")
    assert run_cli(monkeypatch, "status", "runs/demo") == 2
    assert "$SWE_ROLLOUT_STATUS_OUTPUT: 'csv' is not one of" in capsys.readouterr().err
