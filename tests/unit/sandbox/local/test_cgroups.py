"""Control groups: found in both versions, limited, emptied and removed."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from swe_rollout.sandbox.local import cgroups
from swe_rollout.sandbox.local.cgroups import (
    Group,
    Limits,
    Parent,
    find_parents,
    process_limits,
    remove_orphans,
)
from swe_rollout.sandbox.local.folder import own_name
from swe_rollout.spec.sandbox import LocalSandbox

pytestmark = pytest.mark.threat(point=6)
LIMITS = Limits(memory_bytes=1 << 30, processes=100, disk_bytes=1 << 20)
needs_groups = pytest.mark.skipif(
    not find_parents(), reason="needs the right to make control groups: run it as root"
)


def found(tmp_path: Path, groups: str, mounts: str) -> list[Parent]:
    (tmp_path / "cgroup").write_text(groups)
    (tmp_path / "mountinfo").write_text(mounts)
    return list(cgroups._parents(tmp_path / "cgroup", tmp_path / "mountinfo"))


def test_version_1_has_a_folder_for_each_controller(tmp_path: Path) -> None:
    mounts = (
        "30 20 0:26 / /cg/memory rw - cgroup cgroup rw,memory\n"
        "31 20 0:27 /box /cg/cpu\\040set rw - cgroup cgroup rw,cpu,cpuacct\n"
        "32 20 0:28 / /cg/pids rw - cgroup cgroup rw,pids\n"
    )
    groups = "4:memory:/a/b\n3:cpu,cpuacct:/box/c\n2:cpuset:/\n1:pids:/\n0::/\n"
    assert found(tmp_path, groups, mounts) == [
        Parent(Path("/cg/memory/a/b"), frozenset({"memory"}), is_unified=False),
        Parent(Path("/cg/cpu set/c"), frozenset({"cpu"}), is_unified=False),
        Parent(Path("/cg/pids"), frozenset({"pids"}), is_unified=False),
    ]


def unified(root: Path, *, limited: bool = False) -> str:
    own = root / "user.slice" / "app.slice" / "shell.scope"
    own.mkdir(parents=True)
    for folder in (root, own, own.parent, own.parent.parent):
        (folder / "cgroup.procs").touch()
        (folder / "cgroup.subtree_control").write_text("memory pids\n")
        (folder / "memory.max").write_text("max\n")
    (own / "cgroup.subtree_control").write_text("\n")
    if limited:
        (own / "memory.max").write_text("1000000\n")
    return f"30 20 0:26 / {root} rw - cgroup2 cgroup rw\n"


def test_version_2_has_one_folder_beside_the_own_group(tmp_path: Path) -> None:
    mounts = unified(tmp_path / "cg")
    assert found(tmp_path, "0::/user.slice/app.slice/shell.scope\n", mounts) == [
        Parent(
            tmp_path / "cg" / "user.slice" / "app.slice",
            frozenset({"memory", "pids"}),
            is_unified=True,
        )
    ]


def test_a_limit_of_our_own_group_is_not_left(tmp_path: Path) -> None:
    mounts = unified(tmp_path / "cg", limited=True)
    assert found(tmp_path, "0::/user.slice/app.slice/shell.scope\n", mounts) == []


@pytest.mark.parametrize("groups", ["", "0::/\n", "4:memory:/gone\n"])
def test_without_a_mounted_group_there_is_none(tmp_path: Path, groups: str) -> None:
    assert found(tmp_path, groups, "30 20 0:26 / / rw - ext4 /dev/vda rw\n") == []


def test_a_process_that_can_not_be_seen_from_here_is_not_signalled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, _: killed.append(pid))
    (tmp_path / "cgroup.procs").write_text("0\n0\n77\n")
    cgroups._kill(tmp_path)
    assert killed == [77]


@needs_groups
def test_a_group_ends_its_processes_and_is_removed() -> None:
    group = Group.make(find_parents(), LIMITS)
    joins = "".join(f"echo 0 >{folder}/cgroup.procs; " for folder in group.folders)
    with subprocess.Popen(["/bin/sh", "-c", f"{joins} echo; exec sleep 60"], stdout=-1) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        for parent, folder in zip(find_parents(), group.folders, strict=True):
            if "pids" in parent.controllers:
                assert (folder / "pids.max").read_text() == "100\n"
        group.remove()
        assert process.wait() == -signal.SIGKILL
    assert not any(folder.exists() for folder in group.folders)


@needs_groups
def test_groups_of_dead_processes_are_removed_and_those_of_live_ones_kept() -> None:
    make = (
        "from swe_rollout.sandbox.local.cgroups import *\n"
        "from swe_rollout.sandbox.local.cgroups import Limits\n"
        "print(*Group.make(find_parents(), Limits(1 << 30, 100, 1 << 20)).folders, sep='\\n')"
    )
    made = subprocess.run([sys.executable, "-c", make], capture_output=True, text=True, check=True)
    orphans = [Path(line) for line in made.stdout.splitlines()]
    own = Group.make(find_parents(), LIMITS)
    assert all(folder.exists() for folder in orphans)
    remove_orphans(find_parents())
    assert not any(folder.exists() for folder in orphans)
    assert all(folder.exists() for folder in own.folders)
    own.remove()


@needs_groups
def test_a_group_that_can_not_be_made_leaves_none(tmp_path: Path) -> None:
    missing = Parent(tmp_path / "missing", frozenset({"memory"}), is_unified=False)
    with pytest.raises(OSError, match="missing"):
        Group.make((*find_parents(), missing), LIMITS)
    left = (p for parent in find_parents() for p in parent.path.glob(f"*{own_name()}*"))
    assert list(left) == []


@pytest.mark.parametrize(
    ("files", "killed"),
    [
        ({"memory.events": "oom 1\noom_kill 3\n", "memory.max": "1024\n"}, "killed 3"),
        ({"memory.events": "oom 0\noom_kill 3\n", "memory.max": "1024\n"}, ""),
        ({"memory.events": "oom 2\noom_kill 0\n", "memory.max": "1024\n"}, ""),
        (
            {
                "memory.events.local": "oom 0\noom_kill 0\n",
                "memory.events": "oom 1\noom_kill 3\n",
                "memory.max": "1024\n",
            },
            "",
        ),
        (
            {
                "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
                "memory.limit_in_bytes": "536870912\n",
                "memory.max_usage_in_bytes": "536870912\n",
            },
            "536870912 bytes of memory, and the kernel killed 2",
        ),
        (
            {
                "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
                "memory.limit_in_bytes": "536870912\n",
                "memory.max_usage_in_bytes": "1048576\n",
            },
            "",
        ),
        ({"pids.events": "max 4\n"}, ""),
        ({"memory.events": "oom\nnonsense x y\noom_kill -\n"}, ""),
        ({}, ""),
    ],
)
def test_only_the_groups_own_limit_is_evidence(
    tmp_path: Path, files: dict[str, str], killed: str
) -> None:
    """Issue 16, point 4: memory that the machine lacks is the platform's."""
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    found = cgroups.Group((tmp_path / "absent", tmp_path)).evidence()
    assert killed in found
    assert bool(found) == bool(killed)


@pytest.fixture
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(platform, "release", lambda: "6.1.0-13-amd64")
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")


@pytest.mark.usefixtures("_machine")
def test_control_groups_need_no_other_limits() -> None:
    assert process_limits(LIMITS, {"memory", "pids", "cpu"}) == []


@pytest.mark.usefixtures("_machine")
def test_what_no_group_limits_is_limited_for_each_process() -> None:
    both = ["prlimit", f"--data={1 << 30}", "--nproc=100", "--"]
    assert process_limits(LIMITS, set()) == both
    assert process_limits(LIMITS, {"pids"}) == ["prlimit", f"--data={1 << 30}", "--"]
    assert process_limits(LIMITS, {"memory"}) == ["prlimit", "--nproc=100", "--"]


@pytest.mark.parametrize("release", ["5.13.0", "4.19.0-x", "unknown"])
@pytest.mark.usefixtures("_machine")
def test_older_kernels_count_the_users_own_processes_and_get_no_such_limit(
    monkeypatch: pytest.MonkeyPatch, release: str
) -> None:
    monkeypatch.setattr(platform, "release", lambda: release)
    assert process_limits(LIMITS, {"memory"}) == []


@pytest.mark.usefixtures("_machine")
def test_root_has_no_limit_of_processes_and_an_absent_program_sets_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert process_limits(LIMITS, {"memory"}) == []
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert process_limits(LIMITS, set()) == []


def test_limits_are_those_of_the_job() -> None:
    spec = LocalSandbox(memory="512Mi", disk="64Mi", processes=50)
    limits = Limits.of(spec)
    assert limits == Limits(memory_bytes=512 << 20, processes=50, disk_bytes=64 << 20)
    assert limits.file_options == f"mode=755,size={64 << 20},nr_inodes={(64 << 20) // 8192}"
