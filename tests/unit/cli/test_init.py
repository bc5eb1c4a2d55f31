"""The verb `init`."""

from __future__ import annotations

from pathlib import Path

import pytest

from swe_rollout.spec.load import parse_job
from unit.cli.cli_parts import run_cli


def test_init_writes_a_job_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    first = run_cli(monkeypatch, "init")
    second = run_cli(monkeypatch, "init")

    assert (first, second) == (0, 2)
    assert parse_job((tmp_path / "job.yaml").read_text(), source="job.yaml")
    assert "job.yaml already exists" in capsys.readouterr().err


@pytest.mark.threat(point=22)
def test_a_file_that_can_t_be_written_is_an_error_that_names_the_missing_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_cli(monkeypatch, "init", "no/such/job.yaml") == 2
    error = capsys.readouterr().err
    assert "error: no/such/job.yaml can't be written" in error
    assert f"the folder {tmp_path}/no does not exist" in " ".join(error.split())

    (tmp_path / "folder").mkdir()
    rows = ("datasets", "rows", "release-pairs", "-O", "folder")
    assert run_cli(monkeypatch, *rows) == 2
    assert "is a folder" in capsys.readouterr().err
