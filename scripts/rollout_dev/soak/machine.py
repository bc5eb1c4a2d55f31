"""Count what a run holds on this machine, from outside of its process."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from swe_rollout.sandbox.local import cgroups
from swe_rollout.sandbox.local.leftovers import sandboxes_folder

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_RECORDS: Final = ("trajectory.json.zst",)


def of_process(pid: int) -> dict[str, float]:
    """Return memory, descriptors and threads of a process, and the processes below it."""
    process = Path("/proc", str(pid))
    resident = int((process / "statm").read_text().split()[1])
    return {
        "rss_kib": resident * _PAGE / 1024,
        "descriptors": float(_entries(process / "fd")),
        "threads": float(_entries(process / "task")),
        "processes": float(len(descendants(pid))),
    }


def of_machine(pid: int, temporary: Path) -> dict[str, float]:
    """Return mounts of the machine, and control groups and folders of a process.

    `temporary` is where that puts its temporary files. What a process makes has its id in its name.
    """
    folders = sandboxes_folder().glob(f"{pid}-*")
    return {
        "mounts": float(len(Path("/proc/self/mountinfo").read_text().splitlines())),
        "control_groups": float(sum(1 for _ in _groups(pid))),
        "sandbox_folders": float(sum(map(_entries, folders))),
        "temporary_files": float(_entries(temporary)),
    }


def of_store(folder: Path) -> tuple[int, float]:
    """Return the episodes that are committed, and the objects beside their records."""
    episodes = others = 0
    for _, _, files in os.walk(folder):
        records = sum(name in _RECORDS for name in files)
        episodes += records
        others += len(files) - records
    return episodes, float(others)


def descendants(pid: int) -> list[int]:
    """Return the processes below a process, however deep."""
    children: dict[int, list[int]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(process.name))
    found = list(children.get(pid, ()))
    for each in found:
        found.extend(children.get(each, ()))
    return found


def _groups(pid: int) -> Iterable[Path]:
    for parent in cgroups.find_parents():
        with suppress(OSError):
            yield from parent.path.glob(f"swe-rollout-{pid}-*")


def _entries(folder: Path) -> int:
    try:
        return sum(1 for _ in folder.iterdir())
    except OSError:
        return 0
