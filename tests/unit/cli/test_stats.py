"""`stats` as tables and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unit.cli.cli_parts import run_cli
from unit.cli.store_parts import damage, stored


def test_tables_show_quantities_tools_and_outcomes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(monkeypatch, "stats", stored(tmp_path)) == 0
    told = capsys.readouterr()
    rows = [line.split() for line in told.out.splitlines()]
    assert ["turns", "3", "3", "3", "3", "6"] in rows
    assert ["bash", "4", "0", "2", "0", "0", "1.00", "0.25"] in rows
    assert ["call", "invalid", "json", "2"] in rows
    head = rows.index(["PER", "TURN", "MEAN", "P50", "P95", "MAX", "TOTAL"])
    engine = rows[head + 1]
    assert (engine[:3], engine[5:]) == (["engine", "seconds", "1.00"], ["1.00", "6.00"])
    assert float(engine[3]) == pytest.approx(1.0, rel=0.04)
    assert "2 episodes · 2 resolved" in told.err
    assert "0 of 1 graded groups have signal · prefix-cache hit" in told.err


def test_json_names_damaged_records_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    address = stored(tmp_path)
    damage(address, 0)
    assert run_cli(monkeypatch, "stats", address, "-o", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["episodes"] == 1
    assert [each["episode"] for each in found["damaged"]] == ["demo/a/0"]


def test_a_store_without_the_job_is_an_invalid_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_cli(monkeypatch, "stats", f"file://{tmp_path}/nowhere") == 2


def test_names_are_the_quantities(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(monkeypatch, "stats", stored(tmp_path), "-o", "name") == 0
    assert "tool calls" in capsys.readouterr().out.splitlines()
