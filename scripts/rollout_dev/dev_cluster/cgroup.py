"""The cgroup that holds this cluster's pods, in every hierarchy the machine has."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from rollout_dev.dev_cluster.errors import ScriptError


def create(name: str) -> None:
    """Create the cgroup (the kubelet requires it) and delegate controllers to it."""
    for hierarchy in _hierarchies():
        group = hierarchy / name.lstrip("/")
        group.mkdir(exist_ok=True)
        for setting in (
            "cpuset.cpus",
            "cpuset.mems",
        ):  # In v1 it is empty at first, and so unusable.
            if (group / setting).exists() and not (group / setting).read_text().strip():
                (group / setting).write_text((hierarchy / setting).read_text())
        if (group / "cgroup.controllers").exists():
            _delegate(hierarchy, group)


def remove(name: str) -> None:
    """Remove the cgroup and all below it; its processes must have ended."""
    deadline = time.monotonic() + 10
    for hierarchy in _hierarchies():
        group = hierarchy / name.lstrip("/")
        while group.is_dir():
            for folder, _, _ in os.walk(group, topdown=False):
                with contextlib.suppress(
                    OSError
                ):  # It stays busy until the kernel has reaped the last process.
                    Path(folder).rmdir()
            if group.is_dir() and time.monotonic() > deadline:
                raise ScriptError(
                    f"The cgroup {group} cannot be removed.",
                    why="a process is still in it.",
                    fix=f"End the processes in {group}/cgroup.procs, then run the command again.",
                )
            if group.is_dir():
                time.sleep(0.1)


def exists(name: str) -> bool:
    """Whether any hierarchy has the cgroup."""
    return any((hierarchy / name.lstrip("/")).is_dir() for hierarchy in _hierarchies())


def _hierarchies() -> list[Path]:
    """Return the mount points of cgroup v2, of every v1 controller, or of both."""
    found = []
    for line in Path("/proc/mounts").read_text().splitlines():
        _, where, kind, *_ = line.split()
        if kind in ("cgroup", "cgroup2") and where not in found:
            found.append(where)
    return [Path(where) for where in found]


def _delegate(hierarchy: Path, group: Path) -> None:
    """Enable controllers for the group; in v2 every ancestor must delegate them."""
    for controller in (group / "cgroup.controllers").read_text().split():
        (group / "cgroup.subtree_control").write_text(f"+{controller}")
    for controller in (hierarchy / "cgroup.controllers").read_text().split():
        with contextlib.suppress(
            OSError
        ):  # Some can't be delegated; the kubelet reports any that it needs.
            (hierarchy / "cgroup.subtree_control").write_text(f"+{controller}")
