"""`export` writes every format from a store; one damaged record blocks nothing."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from swe_rollout.cli.export import ExportFormat
from swe_rollout.export import files, progress
from swe_rollout.store import store as stores
from swe_rollout.types.episode import EpisodeId
from unit.cli.cli_parts import Cli
from unit.cli.store_parts import EPISODES, damage
from unit.export.export_parts import PATCH

FOLDERS = {
    ExportFormat.ATIF,
    ExportFormat.PATCHES,
    ExportFormat.ROLLOUT_LIBRARY,
    ExportFormat.TIMELINE,
    ExportFormat.TIMELINE_SVG,
}


@pytest.mark.parametrize("to", ExportFormat)
def test_every_format_is_written_although_a_record_is_damaged(
    to: ExportFormat, address: str, cli: Cli
) -> None:
    damage(address, 1)

    done = cli("export", address, "--to", to)

    assert Path(done.out.strip()).is_dir() is (to in FOLDERS)
    for words in ("1 episodes", "left out: ", "damaged"):
        assert words in done.err
    assert not list(Path().glob("*.part"))


def test_one_episode_is_an_address_too(address: str, cli: Cli) -> None:
    out = Path(cli("export", f"{address}/a/1", "--to", "timeline").out.strip())
    assert out.name == "demo-a-1.timeline.html"
    assert out.read_text().startswith("<!doctype html>")
    out = Path(cli("export", f"{address}/a/1", "--to", "timeline-svg").out.strip())
    assert out.name == "demo-a-1.timeline.svg"
    assert out.read_text().startswith("<svg ")
    assert cli("export", address, "--to", "timeline-svg").out == "demo-timeline-svg\n"
    assert Path("demo-timeline-svg", "a", "1.svg").read_text() == out.read_text()
    cli("export", f"{address}/a/1", "-O", "x.parquet")
    assert pq.read_table("x.parquet")["sample"].to_pylist() == [1]


def test_predictions_need_a_choice_of_the_sample(address: str, cli: Cli) -> None:
    arguments = ("export", address, "--to", "predictions", "-O", "preds.jsonl")
    assert "--sample 0" in cli(*arguments, code=2).err
    assert not Path("preds.jsonl").exists()
    cli(*arguments, "--sample", "1", "--drop-path", "*.toml")
    (row,) = map(json.loads, Path("preds.jsonl").read_text().splitlines())
    assert row["dropped_globs"] == ["*.toml"]
    assert row["model_patch"] in PATCH


def test_a_folder_that_is_there_is_not_touched(address: str, cli: Cli) -> None:
    Path("mine").mkdir()
    error = cli("export", address, "--to", "patches", "-O", "mine", code=2).err
    assert "exists already" in error
    assert list(Path("mine").iterdir()) == []
    error = cli("export", address, "--to", "patches", "-O", f"{address}/plan.json/x", code=2).err
    assert "Not a directory" in error


def test_a_task_that_has_changed_is_named_and_left_out(
    address: str, tmp_path: Path, cli: Cli
) -> None:
    row = json.loads((tmp_path / "rows.jsonl").read_text())
    row["problem_statement"] = "another"
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    done = cli("export", address, "--to", "messages", "-O", "x")
    assert "has changed since the episode" in done.err
    assert Path("x").read_bytes() == b""


def test_records_are_read_a_few_at_a_time(
    address: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "_READ_AHEAD", 1)
    assert "2 episodes" in cli("export", address, "--to", "jsonl", "-O", "x").err
    assert len(Path("x").read_bytes().splitlines()) == len(EPISODES)


def test_an_export_that_was_killed_goes_on_without_what_was_committed_since(
    address: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("export", address, "--to", "jsonl", "-O", "whole")
    monkeypatch.setattr(progress, "_EACH", 1)
    with monkeypatch.context() as patch:
        patch.setattr(files._Output, "finish", _killed)
        error = cli("export", address, "--to", "jsonl", "-O", "x", code=130).err
    assert "x.part keeps what is written: the same command goes on with it" in error
    store = stores.Store.open(f"file://{Path(address).parent}")
    asyncio.run(store.commit(replace(EPISODES[0], episode=EpisodeId("demo", "0", 0))))

    done = cli("export", address, "--to", "jsonl", "-O", "x")
    assert "going on after 2 episodes that x.part has already" in done.err
    assert "1 episodes were committed since this export was begun" in done.err
    assert Path("x").read_bytes() == Path("whole").read_bytes()
    error = cli("export", address, "--to", "jsonl", "-O", "x", code=2).err
    assert "exists already" in error


def test_a_part_of_another_export_is_refused(
    address: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(files._Output, "finish", _killed)
        cli("export", address, "--to", "jsonl", "-O", "x", code=130)
    kept = Path("x.part/output").read_bytes()
    error = cli("export", address, "--to", "json", "-O", "x", code=2).err
    assert "x.part is a part of another export" in error
    assert "its format was jsonl, and is json now" in error
    os.utime(f"{address}/plan.json", (0, 0))  # the job was deleted, and another one begun
    error = cli("export", address, "--to", "jsonl", "-O", "x", code=2).err
    assert "and is 1970-01-01T00:00:00+00:00 now" in error
    assert Path("x.part/output").read_bytes() == kept
    shutil.rmtree("x.part")
    cli("export", address, "--to", "json", "-O", "x")


def _killed(*_: object) -> None:
    raise KeyboardInterrupt
