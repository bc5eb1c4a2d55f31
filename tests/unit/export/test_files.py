"""Exports are written as records come, and appear when they are complete."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from swe_rollout.errors import SandboxError, TaskError, UsageError
from swe_rollout.export.files import (
    JSON,
    JSONL,
    FileFormat,
    FolderFormat,
    encode,
    export,
    text_format,
)
from swe_rollout.text.escaping import printable
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.trajectory_json import from_json
from unit.export.export_parts import failed, names, stream, trajectory


def part(found: Trajectory) -> bytes:
    if found.episode.instance == "bad":
        raise TaskError("no such task", retryable=False)
    return str(found.episode).encode()


def files(found: Trajectory) -> Iterator[tuple[str, bytes]]:
    yield f"{found.episode.instance}/x", part(found)


LINES = FileFormat(part, head=b"[", between=b",", tail=b"]")
FOLDER = FolderFormat(files, lambda: [("index", b"end")])


async def broken() -> AsyncIterator[Trajectory]:
    yield trajectory()
    raise SandboxError("gone")


async def test_parts_stand_between_head_and_tail(tmp_path: Path) -> None:
    out = tmp_path / "new" / "x"
    done = await export(stream(trajectory("a"), trajectory("b")), out, LINES)
    assert out.read_bytes() == b"[demo/a/0,demo/b/0]"
    assert (done.episodes, done.left_out) == (2, ())


async def test_what_a_format_cant_show_is_named_and_blocks_nothing(tmp_path: Path) -> None:
    records = [trajectory("bad"), trajectory("a"), trajectory("bad", 1)]
    done = await export(stream(*records), tmp_path / "x", LINES)
    assert (tmp_path / "x").read_bytes() == b"[demo/a/0]"
    assert done.episodes == 1
    assert [str(episode) for episode, _ in done.left_out] == ["demo/bad/0", "demo/bad/1"]
    done = await export(stream(*records), tmp_path / "folder", FOLDER)
    assert names(tmp_path / "folder") == ["a", "index"]
    assert len(done.left_out) == 2


async def test_a_file_that_breaks_leaves_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("old")
    with pytest.raises(SandboxError):
        await export(broken(), tmp_path / "x", LINES)
    assert names(tmp_path) == ["x"]
    assert (tmp_path / "x").read_text() == "old"


async def test_a_folder_that_breaks_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(SandboxError):
        await export(broken(), tmp_path / "x", FOLDER)
    assert names(tmp_path) == []


async def test_files_of_a_killed_export_are_not_among_those_of_the_next(tmp_path: Path) -> None:
    (tmp_path / "x.part" / "output" / "stale").mkdir(parents=True)
    await export(stream(trajectory("a")), tmp_path / "x", FOLDER)
    assert names(tmp_path) == ["x"]
    assert names(tmp_path / "x") == ["a", "index"]


async def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "mine").write_text("mine")
    with pytest.raises(UsageError, match="exists already"):
        await export(stream(trajectory()), tmp_path / "x", FOLDER)
    assert names(tmp_path / "x") == ["mine"]
    (tmp_path / "y").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="exists already"):
        await export(stream(trajectory()), tmp_path / "y", FOLDER)


def test_half_a_surrogate_pair_breaks_no_encoding() -> None:
    assert json.loads(encode({"a": "x\ud800y"})) == {"a": "x?y"}


RECORDS = (trajectory("a"), failed(trajectory("b", 2)))


@pytest.mark.parametrize("records", [RECORDS, ()])
@pytest.mark.parametrize("form", [JSONL, JSON])
async def test_lines_and_an_array_hold_the_whole_records(
    form: FileFormat, records: tuple[Trajectory, ...], tmp_path: Path
) -> None:
    await export(stream(*records), tmp_path / "x", form)
    data = (tmp_path / "x").read_bytes()
    lines = data.splitlines() if form is JSONL else list(map(encode, json.loads(data)))
    assert tuple(map(from_json, lines)) == records


async def test_the_text_tells_turns_results_patch_and_verdict(tmp_path: Path) -> None:
    await export(stream(*RECORDS), tmp_path / "x", text_format(printable))
    text = (tmp_path / "x").read_text()
    assert "==== demo/a/0" in text
    assert "==== demo/b/2" in text
    assert "finished, reward 1, 3 turns" in text
    assert "failed: SandboxError: lost, no reward" in text
    assert "-- 1 bash: ok, 250 ms\nout 1\n" in text
    assert "+new é" in text
    assert "---- verdict: resolved\nPASSED t\n" in text


async def test_a_policys_control_characters_are_shown_and_not_obeyed(tmp_path: Path) -> None:
    hostile = trajectory(text="\x1b]0;owned\x07\u202e")
    await export(stream(hostile), tmp_path / "x", text_format(printable))
    text = (tmp_path / "x").read_text()
    assert not set("\x1b\x07\u202e") & set(text)
