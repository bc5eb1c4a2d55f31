"""An export that was killed goes on where it was, and its output is that of an undisturbed one."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from swe_rollout.errors import SandboxError, UsageError
from swe_rollout.export import files, progress
from swe_rollout.export.files import JSONL, FileFormat, FolderFormat, export
from swe_rollout.export.patches import patches_format
from swe_rollout.export.progress import Progress
from swe_rollout.store.store import Store
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.trajectory import Trajectory
from unit.export.export_parts import names, stream, trajectory
from unit.export.killed_exports import FORMATS

PROGRAM = "unit.export.killed_exports"
EPISODES = [EpisodeId("demo", "a", sample) for sample in range(4)]
WHAT = {"format": "jsonl", "source": "runs/demo"}


@pytest.mark.parametrize("name", FORMATS)
def test_one_that_is_killed_at_any_step_goes_on_to_the_same_bytes(
    name: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", PROGRAM, str(tmp_path), name],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > len(EPISODES)


@pytest.fixture
async def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Return a store with the episodes; an export marks each."""
    monkeypatch.setattr(progress, "_EACH", 1)
    made = Store.open(f"file://{tmp_path}/runs")
    for each in EPISODES:
        await made.commit(trajectory(each.instance, each.sample))
    return made


async def write(store: Store, out: Path, *, fails_after: int = 99) -> None:
    """Export the episodes, or break after some of them."""
    at = Progress.open(out, WHAT, EPISODES)

    async def records() -> AsyncIterator[Trajectory]:
        count = 0
        async for each in at.records(store):
            if count == fails_after:
                raise SandboxError("lost")
            count += 1
            yield each

    await export(records(), out, JSONL, progress=at)


def cut_off(file: Path, end: int) -> None:
    file.write_bytes(file.read_bytes()[:-end])


@pytest.mark.parametrize("cut", [1, 30, 60, 10_000])
async def test_a_torn_progress_costs_what_it_lacks_and_nothing_else(
    cut: int, store: Store, tmp_path: Path
) -> None:
    await write(store, tmp_path / "whole")
    with pytest.raises(SandboxError):
        await write(store, tmp_path / "x", fails_after=2)
    cut_off(tmp_path / "x.part" / "progress", cut)
    await write(store, tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == (tmp_path / "whole").read_bytes()
    assert names(tmp_path) == ["runs", "whole", "x"]


async def test_one_that_breaks_before_its_first_mark_leaves_nothing(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_EACH", 64)
    with pytest.raises(SandboxError):
        await write(store, tmp_path / "x", fails_after=2)
    assert names(tmp_path) == ["runs"]


async def test_another_export_is_not_mixed_in(store: Store, tmp_path: Path) -> None:
    with pytest.raises(SandboxError):
        await write(store, tmp_path / "x", fails_after=2)
    part = (tmp_path / "x.part" / "output").read_bytes()
    with pytest.raises(UsageError, match=r"part of another export") as caught:
        Progress.open(tmp_path / "x", WHAT | {"source": "runs/other"}, EPISODES)
    assert "its source was runs/demo, and is runs/other now" in caught.value.why
    assert (tmp_path / "x.part" / "output").read_bytes() == part


def _link(at: Path, to: Path) -> None:
    at.symlink_to(to)


def _file(at: Path, _: Path) -> None:
    at.write_text("mine")


def _folder(at: Path, _: Path) -> None:
    at.mkdir()
    (at / "mine").touch()


def _open_to_others(at: Path, to: Path) -> None:
    at.mkdir()
    at.chmod(0o777)
    (at / "output").symlink_to(to)


@pytest.mark.parametrize("what", [_link, _file, _folder, _open_to_others])
@pytest.mark.parametrize("form", [JSONL, patches_format()])
async def test_what_lies_in_the_place_of_a_part_is_neither_written_to_nor_removed(
    what: Callable[[Path, Path], None], form: FileFormat | FolderFormat, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine")
    what(tmp_path / "x.part", mine)
    before = names(tmp_path / "x.part") if (tmp_path / "x.part").is_dir() else []

    with pytest.raises(UsageError, match=r"x\.part exists already"):
        Progress.open(tmp_path / "x", WHAT, EPISODES)
    with pytest.raises(UsageError, match=r"x\.part exists already"):
        await export(stream(trajectory()), tmp_path / "x", form)

    assert names(tmp_path) == ["mine", "x.part"]
    assert mine.read_text() == "mine"
    assert (names(tmp_path / "x.part") if (tmp_path / "x.part").is_dir() else []) == before


def test_two_processes_do_not_write_the_same_output(tmp_path: Path) -> None:
    first = Progress.open(tmp_path / "x", WHAT, EPISODES)
    with pytest.raises(UsageError, match="being written by another process"):
        Progress.open(tmp_path / "x", WHAT, EPISODES)
    first.close(tmp_path / "x", is_over=True)
    assert names(tmp_path) == []


async def test_a_full_disk_costs_no_more_than_what_was_not_marked(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        left, real = iter(range(2)), files._Output.sync

        def sync(output: files._Output) -> int:
            if next(left, None) is None:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(output)

        patch.setattr(files._Output, "sync", sync)
        with pytest.raises(OSError, match="No space"):
            await write(store, tmp_path / "x")
    assert not (tmp_path / "x").exists()
    at = Progress.open(tmp_path / "x", WHAT, [])
    assert (at.written, [each.episode async for each in at.records(store)]) == (2, EPISODES[2:])
    at.close(tmp_path / "x", is_over=True)
