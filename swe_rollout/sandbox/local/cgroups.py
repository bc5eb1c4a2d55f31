"""Limit the memory and the processes of a sandbox with control groups, version 1 or 2.

Groups are created below this process's group, or with version 2, which allows no processes beside
groups, next to it. Where that is not permitted, per-process kernel limits are set instead; they
bound neither the memory of many processes together nor the number of root's processes.
"""

from __future__ import annotations

import os
import platform
import re
import secrets
import shutil
import signal
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from swe_rollout.sandbox.local.folder import has_ended, own_name
from swe_rollout.spec.sandbox import LocalSandbox, size_bytes

_BYTES_PER_FILE = 8 << 10
"""One file's share of the disk; a file also costs the kernel about 1 KiB of memory."""
_COUNTED_IN_NAMESPACE = (5, 14)
"""Linux counts processes for each user namespace from this version on."""
_PREFIX = "swe-rollout-"
_CONTROLLERS = ("memory", "pids", "cpu")
"""The cpu controller gives all processes of a sandbox together the weight of one group."""
_PORTION = 4 << 20
_END_S = 10.0
_ROUND_S = 0.01


@dataclass(frozen=True, slots=True)
class Limits:
    """What one sandbox may use in total."""

    memory_bytes: int
    """Memory of all processes and of the files they write."""
    processes: int
    """Processes and threads."""
    disk_bytes: int
    """Total size of the files they write, which are held in memory."""

    @classmethod
    def of(cls, spec: LocalSandbox) -> Limits:
        """Return the limits of a job's local sandboxes."""
        return cls(size_bytes(spec.memory), spec.processes, size_bytes(spec.disk))

    @property
    def file_options(self) -> str:
        """Return the mount options of the file system that holds everything a sandbox writes."""
        return f"mode=755,size={self.disk_bytes},nr_inodes={self.disk_bytes // _BYTES_PER_FILE}"


@dataclass(frozen=True, slots=True)
class Parent:
    """A folder of a cgroup file system in which groups can be made."""

    path: Path
    controllers: frozenset[str]
    is_unified: bool


@dataclass(frozen=True, slots=True)
class Group:
    """The control groups of one sandbox: one, or with version 1 one for each controller."""

    folders: tuple[Path, ...]

    @classmethod
    def make(cls, parents: tuple[Parent, ...], limits: Limits) -> Group:
        """Create groups with these limits; raises OSError where that is not permitted."""
        name = f"{_PREFIX}{own_name()}-{secrets.token_hex(4)}"
        made: list[Path] = []
        try:
            for parent in parents:
                folder = parent.path / name
                folder.mkdir()
                made.append(folder)
                _set(folder, _required(parent, limits))
                with suppress(OSError):  # where swap is not counted, there is no such file
                    _set(folder, _without_swap(parent, limits))
        except OSError:
            cls(tuple(made)).remove()
            raise
        return cls(tuple(made))

    def evidence(self) -> str:
        """Describe the kills for exceeding the groups' own memory.

        Empty without any. Memory that ran out on the whole machine is not the sandbox's doing.
        """
        return next(filter(None, map(_killed_for_memory, self.folders)), "")

    def remove(self) -> None:
        """End the remaining processes in the groups and remove the groups; blocks briefly."""
        over_at = time.monotonic() + _END_S
        left = list(self.folders)
        while left and time.monotonic() < over_at:
            for folder in tuple(left):
                _kill(folder)
                with suppress(OSError):
                    folder.rmdir()
                if not folder.exists():
                    left.remove(folder)
            if left:
                time.sleep(_ROUND_S)


@cache
def find_parents() -> tuple[Parent, ...]:
    """Return where this process may create groups for sandboxes; empty if nowhere."""
    found = tuple(_parents(Path("/proc/self/cgroup"), Path("/proc/self/mountinfo")))
    return tuple(parent for parent in found if _can_make(parent))


def remove_orphans(parents: tuple[Parent, ...]) -> None:
    """Remove the groups that ended processes left behind."""
    for folder in orphans(parents):
        with suppress(OSError):  # another process may be faster
            folder.rmdir()


def orphans(parents: tuple[Parent, ...]) -> Iterator[Path]:
    """Yield the groups whose owner has ended and in which no process is left.

    A group with processes is never an orphan: its owner may run in a container with another
    numbering of processes.
    """
    for parent in parents:
        for folder in parent.path.glob(f"{_PREFIX}*-*-*"):
            owner = folder.name.removeprefix(_PREFIX).rpartition("-")[0]
            if has_ended(owner) and not _read(folder / "cgroup.procs").strip():
                yield folder


def process_limits(limits: Limits, controllers: Collection[str]) -> list[str]:
    """Return the command that limits single processes where control groups are unavailable."""
    words = []
    if "memory" not in controllers:
        words.append(f"--data={limits.memory_bytes}")
    if "pids" not in controllers and os.geteuid() != 0 and _counts_in_namespace():
        words.append(f"--nproc={limits.processes}")
    return ["prlimit", *words, "--"] if words and shutil.which("prlimit") else []


def _counts_in_namespace() -> bool:
    numbers = platform.release().split(".")[:2]
    return all(number.isdigit() for number in numbers) and (
        tuple(map(int, numbers)) >= _COUNTED_IN_NAMESPACE
    )


def _parents(groups: Path, mounts: Path) -> Iterator[Parent]:
    try:
        lines = groups.read_text("utf-8").splitlines()
        mounted = mounts.read_text("utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, names, path = line.split(":", 2)
        wanted = frozenset(names.split(",")) & set(_CONTROLLERS)
        if wanted and (folder := _mounted(mounted, "cgroup", names.split(",")[0], path)):
            yield Parent(folder, wanted, is_unified=False)
        elif not names and (folder := _mounted(mounted, "cgroup2", "", path)):
            yield from _unified(folder)


def _mounted(mounts: list[str], kind: str, controller: str, path: str) -> Path | None:
    """Find the folder of group `path` in the file system of the controller."""
    for line in mounts:
        where, _, what = line.partition(" - ")
        root, point = (re.sub(r"\\(\d{3})", _unescaped, word) for word in where.split()[3:5])
        options = what.split()
        if options[0] == kind and (not controller or controller in options[2].split(",")):
            with suppress(ValueError):
                return Path(point) / Path(path).relative_to(root)
    return None


def _unescaped(match: re.Match[str]) -> str:
    return chr(int(match[1], 8))


def _unified(own: Path) -> Iterator[Parent]:
    """Find the nearest group that delegates its controllers, never one outside a limit."""
    for folder in (own, *own.parents):
        controllers = frozenset(_read(folder / "cgroup.subtree_control").split())
        if {"memory", "pids"} <= controllers and os.access(folder / "cgroup.procs", os.W_OK):
            yield Parent(folder, controllers & set(_CONTROLLERS), is_unified=True)
            return
        is_limited = any(
            _read(folder / name).strip() not in {"", "max"} for name in ("memory.max", "pids.max")
        )
        if is_limited or not (folder.parent / "cgroup.procs").exists():
            return


def _can_make(parent: Parent) -> bool:
    folder = parent.path / f"{_PREFIX}{own_name()}-{secrets.token_hex(4)}"
    try:
        folder.mkdir()
    except OSError:
        return False
    with suppress(OSError):
        folder.rmdir()
    return True


def _required(parent: Parent, limits: Limits) -> Mapping[str, int]:
    memory = "memory.max" if parent.is_unified else "memory.limit_in_bytes"
    settings = {"memory": (memory, limits.memory_bytes), "pids": ("pids.max", limits.processes)}
    return dict(settings[name] for name in settings if name in parent.controllers)


def _without_swap(parent: Parent, limits: Limits) -> Mapping[str, int]:
    if "memory" not in parent.controllers:
        return {}
    if parent.is_unified:
        return {"memory.swap.max": 0}
    return {"memory.memsw.limit_in_bytes": limits.memory_bytes}


def _set(folder: Path, settings: Mapping[str, int]) -> None:
    for name, value in settings.items():
        (folder / name).write_text(str(value), "ascii")


def _killed_for_memory(folder: Path) -> str:
    """Describe a group's memory kills, in either version; empty if there were none."""
    counts = _counts(folder / "memory.events.local") or _counts(folder / "memory.events")
    if counts:
        limit = _read(folder / "memory.max").strip()
        reached = counts.get("oom", 0) > 0
    else:
        counts = _counts(folder / "memory.oom_control")
        limit = _read(folder / "memory.limit_in_bytes").strip()
        most = _read(folder / "memory.max_usage_in_bytes").strip()
        # Memory is charged in portions: the last one may not have fitted.
        reached = limit.isdigit() and most.isdigit() and int(limit) - int(most) <= _PORTION
    killed = counts.get("oom_kill", 0)
    if not (killed and reached):
        return ""
    return f"its processes reached their {limit} bytes of memory, and the kernel killed {killed}"


def _counts(file: Path) -> dict[str, int]:
    return {name: int(n) for name, n in re.findall(r"^(\S+) (\d+)$", _read(file), re.MULTILINE)}


def _kill(folder: Path) -> None:
    pids = [int(word) for word in _read(folder / "cgroup.procs").split()]
    # 0 stands for a process that is invisible from here; to `kill` it would mean ourselves.
    for pid in filter(None, pids):
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _read(path: Path) -> str:
    try:
        return path.read_text("ascii")
    except OSError:
        return ""
