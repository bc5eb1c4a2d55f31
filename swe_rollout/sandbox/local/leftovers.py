"""Find and remove what local sandboxes leave on this machine when their process is killed.

Namespaces and their mounts end with the last process, and a supervisor ends with its stream.
Folders, empty control groups, and processes of plain directories that left their session can
remain. Each carries the id and start time of the process that made it. Nothing that a live process
or another user made is ever touched.
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
"""The processes to wait for in one round; each takes a descriptor."""


class LeftoverKind(StrEnum):
    """The kind of a leftover."""

    FOLDER = "folder"
    GROUP = "control group"
    PROCESS = "process"


@dataclass(frozen=True, slots=True)
class Leftover:
    """Something that a dead process left behind."""

    kind: LeftoverKind
    place: Path
    """The path of the leftover; for a process, its folder in /proc."""


def sandboxes_folder() -> Path:
    """Return where this user's processes keep their sandbox folders."""
    return cache_dir() / "sandboxes"


def find(root: Path) -> tuple[Leftover, ...]:
    """Find what dead processes of this user left; `root` has the folders. Blocks."""
    return (
        *(Leftover(LeftoverKind.PROCESS, each) for each in _processes(root)),
        *(Leftover(LeftoverKind.GROUP, each) for each in cgroups.orphans(cgroups.find_parents())),
        *(Leftover(LeftoverKind.FOLDER, each) for each in folder.orphans(root)),
    )


def remove(root: Path) -> tuple[Leftover, ...]:
    """Remove what dead processes left, processes first, and return it. Blocks."""
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
    """Kill processes and wait until they are gone; until then they may still write."""
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
    """Kill a process; return a descriptor that becomes readable when it is gone."""
    try:
        descriptor = os.pidfd_open(int(process.name))
    except OSError:
        return None
    with suppress(OSError):
        # The id may belong to another process by now; the descriptor never will.
        if environment(process):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            return descriptor
    os.close(descriptor)
    return None


def _processes(root: Path) -> Iterator[Path]:
    """Yield the processes of plain directories below `root` whose provider has died."""
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
    """Return the provider's folder that contains the home of a sandbox's process."""
    values = dict(each.partition(b"=")[::2] for each in variables)
    if MARK.encode() not in values:
        return None
    home = Path(os.fsdecode(values.get(b"HOME", b"")))
    if not home.is_relative_to(root):
        return None
    parts = home.relative_to(root).parts
    return root / parts[0] if parts and folder.FOLDER_NAME.fullmatch(parts[0]) else None


def _namespace(process: Path) -> str | None:
    """Return the pid namespace of a process; None if it can't be read."""
    try:
        return str((process / "ns/pid").readlink())
    except OSError:
        return None
