"""A job as a data frame."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from checkout import ROOT
from swe_rollout.errors import PrerequisiteError, UsageError
from swe_rollout.export import frame as frames
from swe_rollout.export.frame import COLUMNS, SCHEMA, FrameLibrary, choose_library, frame, table
from swe_rollout.types.trajectory import Trajectory
from unit.export.export_parts import branched, failed, trajectory

EPISODES = (trajectory(), failed(trajectory(sample=1)), replace(branched(), finished_at="soon"))


def test_a_row_has_the_numbers_of_its_episode_and_nulls_where_there_is_none() -> None:
    one, broken, other = table(EPISODES).to_pylist()

    assert one["episode"] == "demo/a/0"
    assert (one["turns"], one["tool_calls"], one["bad_calls"]) == (3, 3, 1)
    assert (one["reward"], one["verdict"], one["resolved"], one["masked"]) == (
        1.0,
        "resolved",
        True,
        False,
    )
    assert one["finished_at"].isoformat() == "2026-01-02T03:04:05.678000+00:00"
    assert one["sampled_tokens"] == 15
    assert (broken["reward"], broken["verdict"], broken["stop_reason"]) == (None, None, None)
    assert (broken["masked"], broken["failure_owner"], broken["failure"]) == (
        True,
        "sandbox",
        "SandboxError",
    )
    assert (other["branches"], other["finished_at"]) == (2, None)


def test_many_episodes_are_read_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "_BATCH", 2)
    found = table(iter(EPISODES))
    assert (found.num_rows, found.column("sample").num_chunks) == (3, 2)
    assert table([]).schema == SCHEMA


def test_the_page_has_every_column_with_its_type() -> None:
    page = (ROOT / "docs" / "how-to" / "notebook.md").read_text("utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert rows == [f"| `{each.name}` | {each.type} | {each.about} |" for each in COLUMNS]


def installed(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    for name in ("pandas", "polars"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(frames, "find_spec", lambda name: name if name in names else None)


def test_the_library_that_is_there_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "polars")
    assert choose_library(None) == "polars"
    installed(monkeypatch, "pandas", "polars")
    assert choose_library(None) == "pandas"
    assert choose_library("polars") == "polars"
    monkeypatch.setitem(sys.modules, "polars", ModuleType("polars"))
    assert choose_library(None) == "polars"


def test_without_a_library_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch)
    with pytest.raises(PrerequisiteError) as caught:
        choose_library(None)
    assert "pip install pandas" in caught.value.fix
    with pytest.raises(PrerequisiteError, match="polars is not installed") as caught:
        choose_library("polars")
    assert caught.value.fix == "pip install polars"
    with pytest.raises(UsageError, match="modin"):
        choose_library("modin")


def test_polars_gets_the_table_of_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    made = ModuleType("polars")
    made.from_arrow = lambda found: ("frame", found)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "polars", made)
    kind, found = frame(EPISODES, "polars")
    assert kind == "frame"
    assert isinstance(found, pa.Table)


def value(found: Any, column: str, row: int) -> object:
    return found[column].to_list()[row]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_frame_of_the_real_library(library: FrameLibrary) -> None:
    pytest.importorskip(library, reason=f"pip install {library}")
    many: list[Trajectory] = [trajectory(sample=n) for n in range(5)]
    found = frame([*many, failed(trajectory(sample=5))], library)

    assert type(found).__module__.partition(".")[0] == library
    assert list(found.columns) == [each.name for each in COLUMNS]
    assert found.shape == (6, len(COLUMNS))
    assert (value(found, "sample", 3), value(found, "masked", 5)) == (3, True)
    assert found["reward"].mean() == 1.0
    assert str(found["turns"].dtype).lower() == "int64"
