"""Records as JSON and JSON Lines, lossless; and as a text for people (J2, J3)."""

from __future__ import annotations

import json
from pathlib import Path

from swe_rollout.export.files import JSON, JSONL, export, text_format
from swe_rollout.text.escaping import printable
from swe_rollout.types.trajectory_json import from_json
from unit.export.export_parts import failed, stream, trajectory

RECORDS = (trajectory("a"), failed(trajectory("b", 2)))


async def test_lines_hold_the_whole_records(tmp_path: Path) -> None:
    await export(stream(*RECORDS), tmp_path / "x", JSONL)
    lines = (tmp_path / "x").read_bytes().splitlines()
    assert tuple(map(from_json, lines)) == RECORDS


async def test_an_array_holds_the_whole_records(tmp_path: Path) -> None:
    await export(stream(*RECORDS), tmp_path / "x", JSON)
    found = json.loads((tmp_path / "x").read_bytes())
    assert tuple(from_json(json.dumps(each).encode()) for each in found) == RECORDS


async def test_an_array_of_nothing_is_json(tmp_path: Path) -> None:
    await export(stream(), tmp_path / "x", JSON)
    assert json.loads((tmp_path / "x").read_bytes()) == []


async def test_the_text_tells_turns_results_patch_and_verdict(tmp_path: Path) -> None:
    await export(stream(*RECORDS), tmp_path / "x", text_format(printable))
    text = (tmp_path / "x").read_text()
    assert "==== demo/a/0" in text
    assert "==== demo/b/2" in text
    assert "finished, reward 1, 3 turns" in text
    assert "failed: SandboxError: lost, no reward" in text
    assert "-- 1 bash: ok, 0.250 s\nout 1\n" in text
    assert "+new é" in text
    assert "---- verdict: resolved\nPASSED t\n" in text


async def test_a_policys_control_characters_are_shown_and_not_obeyed(tmp_path: Path) -> None:
    hostile = trajectory(text="\x1b]0;owned\x07\u202e")
    await export(stream(hostile), tmp_path / "x", text_format(printable))
    text = (tmp_path / "x").read_text()
    assert not set("\x1b\x07\u202e") & set(text)
