"""What a killed process leaves of its sandboxes is found and removed, and nothing else.

Issue 16, point 7.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from swe_rollout.sandbox.local import cgroups, folder, leftovers
from swe_rollout.sandbox.local.leftovers import LeftoverKind
from tree_images import make_tree_image

_PLAYS = """
import asyncio, sys
from swe_rollout.sandbox.base import Role, SandboxRequest
from swe_rollout.sandbox.local.provider import LocalProvider
from swe_rollout.spec.sandbox import LocalSandbox
from swe_rollout.types.episode import EpisodeId

async def main():
    spec = LocalSandbox(images=sys.argv[1], isolation=sys.argv[2])
    provider = LocalProvider(spec)
    request = SandboxRequest(EpisodeId("job", "one", 0), Role.AGENT, "left:1", "/testbed")
    sandbox = await provider.start(request)
    # It leaves its session, so the supervisor does not end it.
    script = "setsid sh -c 'echo $$; exec sleep 600' & sleep 0.3"
    print((await sandbox.exec(script)).stdout.decode().strip(), flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    make_tree_image("left:1", tmp_path / "images")
    return tmp_path / "images"


def start(images: Path, isolation: str) -> tuple[subprocess.Popen[str], int]:
    """Start a process with a sandbox; return it and the id of what its command left running."""
    command = [sys.executable, "-c", _PLAYS, str(images), isolation]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout as printed:
        return process, int(next(line for line in printed if line.strip().isdigit()))


@pytest.fixture
def plain(images: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    process, left = start(images, "none")
    yield process, left
    process.kill()
    process.wait()
    leftovers.remove(leftovers.sandboxes_folder())


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_what_a_living_process_uses_is_left_alone(plain: tuple[subprocess.Popen[str], int]) -> None:
    process, left = plain
    root = leftovers.sandboxes_folder()
    found = [each for each in leftovers.find(root) if each.kind is not LeftoverKind.GROUP]
    assert found == []
    leftovers.remove(root)
    assert runs(left)
    assert process.poll() is None
    assert len(list(root.iterdir())) == 1


def test_what_a_killed_process_left_is_removed(plain: tuple[subprocess.Popen[str], int]) -> None:
    process, left = plain
    root = leftovers.sandboxes_folder()
    process.send_signal(signal.SIGKILL)
    process.wait()
    kinds = {each.kind for each in leftovers.find(root)}
    assert {LeftoverKind.FOLDER, LeftoverKind.PROCESS} <= kinds
    assert any(each.place == Path(f"/proc/{left}") for each in leftovers.remove(root))
    assert not runs(left)
    assert list(root.iterdir()) == []
    remaining = [each for each in leftovers.find(root) if each.kind is not LeftoverKind.GROUP]
    assert remaining == []


def test_processes_are_found_after_their_folder_is_gone(
    plain: tuple[subprocess.Popen[str], int],
) -> None:
    process, left = plain
    root = leftovers.sandboxes_folder()
    process.kill()
    process.wait()
    folder.delete_orphans(root)
    assert runs(left)
    leftovers.remove(root)
    assert not runs(left)


def test_a_lock_that_is_held_protects_a_folder_of_another_container(tmp_path: Path) -> None:
    """Its process id means nothing here; its lock does."""
    ours = folder.ProviderFolder(tmp_path)
    foreign = tmp_path / "1-1-0123abcd"
    ours.path.rename(foreign)
    assert leftovers.find(tmp_path) == _groups()
    leftovers.remove(tmp_path)
    assert foreign.is_dir()
    foreign.rename(ours.path)
    ours.close()


def test_other_names_and_other_roots_are_left_alone(tmp_path: Path) -> None:
    for name in ("notes", "1-1-xyz", "12-34-0123abcd.bak"):
        (tmp_path / name).mkdir()
    leftovers.remove(tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
    assert leftovers.find(tmp_path / "absent") == _groups()


def test_folders_of_other_users_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "1-1-0123abcd").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert leftovers.find(tmp_path) == _groups()


@pytest.mark.skipif(not cgroups.find_parents(), reason="needs the right to make control groups")
def test_groups_that_are_empty_go_and_those_in_use_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A parent of its own: every other run on this machine looks for leftovers in the common ones.
    common = cgroups.find_parents()[0]
    parent = common.path / f"test-{tmp_path.parent.name}-{os.getpid()}"
    parent.mkdir()
    own = replace(common, path=parent)
    monkeypatch.setattr(cgroups, "find_parents", lambda: (own,))
    empty, used = (parent / f"swe-rollout-1-1-{name}" for name in ("00000001", "00000002"))
    with subprocess.Popen(["sleep", "60"]) as inside:
        try:
            for group in (empty, used):
                group.mkdir()
            (used / "cgroup.procs").write_text(str(inside.pid))
            found = {each.place for each in leftovers.find(Path("/nowhere"))}
            assert empty in found
            assert used not in found, "its owner may live where ids are others"
            leftovers.remove(Path("/nowhere"))
            assert not empty.exists()
            assert used.exists()
            assert inside.poll() is None
        finally:
            inside.kill()
            inside.wait()
            for group in (empty, used):
                if group.exists():
                    group.rmdir()
            parent.rmdir()


def _groups() -> tuple[leftovers.Leftover, ...]:
    return tuple(each for each in leftovers.find(Path("/nowhere")))
