"""The mount namespace of a sandbox, with a small file system for everything it writes.

That file system is in memory, limited in size, and disappears with the last process: nothing has to
be removed, and a crash leaves nothing. An image's folders are mounted as an overlay, or copied on
machines without overlays. Everything is prepared inside the namespace by relative names, so that no
path of this machine appears in the sandbox's mounts.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from swe_rollout.sandbox.local.bubblewrap import PROGRAM_FILE, Bind, new_namespace
from swe_rollout.sandbox.local.cgroups import Group, Limits, Parent, process_limits
from swe_rollout.sandbox.local.folder import own_name
from swe_rollout.sandbox.local.images import LocalImage
from swe_rollout.sandbox.local.machine import EMPTY_FILE, EMPTY_FOLDER
from swe_rollout.sandbox.script import read_script

_MERGED = "merged"
_FOLDERS = ("home", "run", "upper", "work", _MERGED)
_OPEN_FOLDERS = ("tmp", "vartmp", "shm")
_PROBE = "echo new >merged/file && rm -r merged/folder && mkdir merged/folder"
_PROBE_LIMITS = Limits(memory_bytes=1 << 30, processes=1 << 10, disk_bytes=1 << 20)
_PROBE_S = 20


@dataclass(frozen=True, slots=True)
class Namespace:
    """What the namespaces of a provider's sandboxes share."""

    point: Path
    """An empty folder on which each sandbox mounts its file system, in its own namespace."""
    content: Path
    """The initial files and folders of each file system."""
    limits: Limits
    parents: tuple[Parent, ...] = ()
    """Folders in which control groups can be created."""

    def enter(self, command: Sequence[str], *, group: Group, steps: Sequence[str]) -> list[str]:
        """Return the command line that runs `command` in a new namespace, after `steps`."""
        is_root = os.geteuid() == 0
        controllers = {name for parent in self.parents for name in parent.controllers}
        joins = [word for folder in group.folders for word in ("join", str(folder), "")]
        return [
            *process_limits(self.limits, controllers),
            *new_namespace(),
            # An unprivileged overlay needs attributes of the `user.` namespace.
            *("/bin/sh", "-c", read_script("enter_namespace"), "" if is_root else ",userxattr"),
            *joins,
            *("mount", str(self.point), self.limits.file_options),
            *("copy", str(self.content), "."),
            *steps,
            "--",
            *command,
        ]


@dataclass(slots=True)
class Layout:
    """The steps that bring an image's folders into a namespace, and their paths in the sandbox."""

    steps: list[str] = field(default_factory=list)
    binds: list[Bind] = field(default_factory=list)

    @classmethod
    def of(cls, image: LocalImage, source: Path, *, overlaid: bool) -> Layout:
        """Lay out the image in the folder `source`."""
        layout, source = cls(), source.resolve()
        own: dict[Path, Path] = {}
        if overlaid:
            layout.steps += ("overlay", str(source), _MERGED)
        for number, mount in enumerate(image.mounts):
            path = (source / mount.source).resolve()
            if overlaid and path.is_relative_to(source):
                path = Path(_MERGED, path.relative_to(source))
            elif mount.writable and path in own:
                path = own[path]  # one folder at two paths
            elif mount.writable:
                step, name = "overlay-or-copy" if overlaid else "copy", f"own-{number}"
                layout.steps += (step, str(path), name)
                path = own.setdefault(path, Path(name))
            layout.binds.append(Bind(path, mount.target, mount.writable))
        return layout


def fill(content: Path, program: bytes, configuration: dict[str, bytes]) -> None:
    """Write each file system's initial content: folders, the supervisor's program, and /etc."""
    for name in (*_FOLDERS, *_OPEN_FOLDERS, "etc", EMPTY_FOLDER):
        (content / name).mkdir(parents=True)
    for name in _OPEN_FOLDERS:
        (content / name).chmod(0o1777)
    for name, data in configuration.items():
        path = content / "etc" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    (content / EMPTY_FILE).touch()
    (content / PROGRAM_FILE).write_bytes(program)
    (content / PROGRAM_FILE).chmod(0o755)


@cache
def can_overlay(root: Path) -> bool:
    """Return whether overlays work in `root`; mounts one and replaces a folder in it."""
    with tempfile.TemporaryDirectory(dir=root, prefix=f"{own_name()}-") as name:
        content, point, lower = (Path(name, each) for each in ("content", "point", "lower"))
        for folder in (lower / "folder", point, *(content / each for each in _FOLDERS)):
            folder.mkdir(parents=True)
        (lower / "file").write_text("old")
        steps = ("overlay", str(lower), _MERGED)
        namespace = Namespace(point, content, _PROBE_LIMITS)
        command = namespace.enter(["/bin/sh", "-c", _PROBE], group=Group(()), steps=steps)
        try:
            done = subprocess.run(command, capture_output=True, timeout=_PROBE_S, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return False
        return done.returncode == 0
