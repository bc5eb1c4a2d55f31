"""The command line, and the stored job that a test works on."""

from __future__ import annotations

from pathlib import Path

import pytest

from unit.cli.cli_parts import Cli, Done, run_cli, without_cluster
from unit.cli.store_parts import stored


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    def run(*arguments: str, code: int = 0) -> Done:
        capsys.readouterr()
        ended = run_cli(monkeypatch, *arguments)
        printed = capsys.readouterr()
        assert ended == code, printed.err
        return Done(printed.out, printed.err)

    return run


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A job of two resolved episodes, as an absolute path; it is runs/demo from here."""
    monkeypatch.chdir(tmp_path)
    without_cluster(monkeypatch, tmp_path)
    return stored(tmp_path)
