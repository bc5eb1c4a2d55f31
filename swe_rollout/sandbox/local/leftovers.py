"""What local sandboxes leave on this machine when their process is killed, and how to remove it.

Namespaces and what is mounted in them end with their last process, and a supervisor ends with its
stream. What can be left are folders, empty control groups, and processes of plain directories that
have left their session. Each carries the id and the start time of the process that made it; what a
living one made, or somebody else, is never touched.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from swe_rollout.sandbox.local import cgroups, folder
from swe_rollout.sandbox.local.images import cache_dir
from swe_rollout.sandbox.local.plain import MARK, environment

_ROUNDS = 10
"""A process may start others while it is being ended."""
_GONE_S = 2.0
_AWAITED = 256
"""Processes of a round that are waited for; each takes a descriptor."""


class LeftoverKind(StrEnum):
    """What kind of thing was left."""

    FOLDER = "folder"
    GROUP = "control group"
    PROCESS = "process"


@dataclass(frozen=True, slots=True)
class Leftover:
    """One thing that a dead process has left."""

    kind: LeftoverKind
    place: Path
    """A process has its folder in /proc."""


def sandboxes_folder() -> Path:
    """Return where this user's processes keep the folders of their sandboxes."""
    return cache_dir() / "sandboxes"


def find(root: Path) -> tuple[Leftover, ...]:
    """Return what dead processes of this user have left; `root` has the folders. Blocks."""
    return (
        *(Leftover(LeftoverKind.PROCESS, each) for each in _processes(root)),
        *(Leftover(LeftoverKind.GROUP, each) for each in cgroups.orphans(cgroups.find_parents())),
        *(Leftover(LeftoverKind.FOLDER, each) for each in folder.orphans(root)),
    )


def remove(root: Path) -> tuple[Leftover, ...]:
    """Remove what dead processes have left, processes first, and return it. Blocks."""
    found = find(root)
    for _ in range(_ROUNDS):
        if not (running := tuple(_processes(root))):
            break
        _kill(running)
    for each in found:
        match each.kind:
            case LeftoverKind.GROUP:
                with suppress(OSError):
                    each.place.rmdir()
            case LeftoverKind.FOLDER:
                folder.remove(each.place)
            case LeftoverKind.PROCESS:
                pass
    return found


def _kill(processes: Iterable[Path]) -> None:
    """Kill processes, and wait until they are gone: that takes a moment, in which they write."""
    going: list[int] = []
    try:
        for process in processes:
            if (descriptor := _killed(process)) is None:
                continue
            if len(going) < _AWAITED:
                going.append(descriptor)
            else:
                os.close(descriptor)
        deadline = time.monotonic() + _GONE_S
        for descriptor in going:
            end = select.poll()
            end.register(descriptor, select.POLLIN)
            end.poll(1e3 * max(0.0, deadline - time.monotonic()))
    finally:
        for descriptor in going:
            os.close(descriptor)


def _killed(process: Path) -> int | None:
    """Kill a process; return a descriptor that is readable when it is gone."""
    try:
        descriptor = os.pidfd_open(int(process.name))
    except OSError:
        return None
    with suppress(OSError):
        # The id may belong to another process by now; the descriptor's never will.
        if environment(process):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            return descriptor
    os.close(descriptor)
    return None


def _processes(root: Path) -> Iterator[Path]:
    """Yield processes of plain directories below `root` whose provider has died."""
    own_namespace = _namespace(Path("/proc/self"))
    for process in Path("/proc").glob("[0-9]*"):
        try:
            is_ours = process.stat().st_uid == os.geteuid()
        except OSError:
            continue
        if not is_ours or own_namespace is None or _namespace(process) != own_namespace:
            continue
        owner = _owner(environment(process), root)
        if owner is not None and folder.is_orphan(owner):
            yield process


def _owner(variables: list[bytes], root: Path) -> Path | None:
    """Return the provider's folder that a sandbox's process got its home in."""
    values = dict(each.partition(b"=")[::2] for each in variables)
    if MARK.encode() not in values:
        return None
    home = Path(os.fsdecode(values.get(b"HOME", b"")))
    if not home.is_relative_to(root):
        return None
    parts = home.relative_to(root).parts
    return root / parts[0] if parts and folder.FOLDER_NAME.fullmatch(parts[0]) else None


def _namespace(process: Path) -> str | None:
    """Return the pid namespace of a process; None where it can't be seen."""
    try:
        return str((process / "ns/pid").readlink())
    except OSError:
        return None
