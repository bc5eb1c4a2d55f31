"""List what is below a folder, with only `find`: bounded, with a report of omissions."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from swe_rollout.agent.off_loop import off_loop
from swe_rollout.agent.tools.base import ToolError, readable
from swe_rollout.agent.tools.face import Call
from swe_rollout.agent.tools.files import PathInfo, PathKind, check_path, look, need_file, script

MAX_BYTES: Final = 4 << 20
"""Maximum bytes of names, about 70,000 names; a larger tree is walked in part."""
REPOSITORY_FOLDERS: Final = (".git", ".hg", ".svn", ".bzr")
_STEP: Final = 2000
"""Number of paths to process at a time in the shared thread."""
_MAX_FILE_BYTES: Final = 64 << 20
_TOO_LARGE: Final = ("-size", f"+{_MAX_FILE_BYTES // 512}")
"""In blocks of 512 bytes. A sparse file costs nothing to make, but hours to read."""
_KERNEL: Final = ("-path", "./proc/*", "-o", "-path", "./sys/*", "-o", "-path", "./dev/*", "-o")
"""The kernel's virtual file systems, which a walk of `/` skips."""
_WALK: Final = (
    'cd -- "$1" >/dev/null && limit=$2 && shift 2 && find . -mindepth 1 "$@" | head -c "$limit"'
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A path of a walk, relative to its start."""

    path: bytes
    is_marked: bool
    """Whether the walk's `mark` condition holds for it."""


@dataclass(frozen=True, slots=True)
class Walk:
    """The entries that a walk found, in the order of `find`."""

    entries: tuple[Entry, ...]
    complete: bool
    """Whether these are all entries: neither the byte nor the time limit was reached."""
    timed_out: bool = False
    unread: tuple[str, ...] = ()
    """Messages of `find` about folders that it could not read."""


@dataclass(frozen=True, slots=True)
class Tree:
    """Files to search, relative to a folder, and possibly wanted files that were left out."""

    folder: str
    prefix: str
    """The prefix of a path as the policy would write it."""
    paths: tuple[bytes, ...]
    is_one_file: bool = False
    """Whether a single file was searched."""
    notes: tuple[str, ...] = ()
    walked: Walk = field(default_factory=lambda: Walk((), complete=True))

    def shown(self, path: bytes) -> str:
        """Return a path as the policy would write it."""
        return f"{self.prefix}{readable(path)}"


async def start_of(call: Call, path: str, name: str = "path") -> PathInfo:
    """Look up the folder or file at which a search starts. Raises ToolError if there is none."""
    check_path(path, name)
    info = await look(call, path)
    if info.kind is not PathKind.DIRECTORY:
        await need_file(call, info)
        return info
    # `..` after a link is not the folder that the text suggests.
    plain = info.path if ".." in info.path.split("/") else posixpath.normpath(info.path)
    return replace(info, path=plain)


async def walk(
    call: Call,
    folder: str,
    *,
    prune: Sequence[str],
    mark: Sequence[str] = ("-type", "d"),
    files_only: bool = False,
    depth: int | None = None,
    max_bytes: int = MAX_BYTES,
) -> Walk:
    """Walk `folder`. `prune` and `mark` are conditions of `find` for what to omit and to mark.

    `files_only` omits all but regular files; links are never followed. Raises ToolError if the
    folder can't be entered.
    """
    levels = () if depth is None else ("-maxdepth", str(depth))
    kind = ("-type", "f") if files_only else ()
    # Marked paths are printed twice in a row, so no name can be mistaken for a mark.
    kernel = _KERNEL if folder == "/" else ()
    expression = ["(", *kernel, *prune, ")", "-prune", "-o", *kind, "-print0", *mark, "-print0"]
    words = [folder, str(max_bytes), *levels, *expression]
    result = await script(call, _WALK, *words, max_output=max_bytes)
    if not result.stdout and not result.ok and not result.timed_out:
        raise ToolError(f"{folder} can't be searched")
    return Walk(
        await off_loop(_entries, result.stdout),
        complete=not result.timed_out and result.stdout_bytes < max_bytes,
        timed_out=result.timed_out,
        unread=tuple(readable(result.stderr).splitlines()),
    )


def _entries(output: bytes) -> tuple[Entry, ...]:
    # A truncated walk ends with half a name.
    names = output.split(b"\0")[:-1]
    entries: list[Entry] = []
    for name in names:
        path = name.removeprefix(b"./")
        if entries and entries[-1].path == path:
            entries[-1] = Entry(path, is_marked=True)
        else:
            entries.append(Entry(path, is_marked=False))
    return tuple(entries)


async def selected(entries: Sequence[Entry], accepts: Callable[[str], bool]) -> list[Entry]:
    """Return the entries whose path is accepted, without blocking the event loop."""
    chosen: list[Entry] = []
    rest = iter(entries)
    while some := list(islice(rest, _STEP)):
        chosen += await off_loop(_selected, some, accepts)
    return chosen


def _selected(entries: Sequence[Entry], accepts: Callable[[str], bool]) -> list[Entry]:
    return [entry for entry in entries if accepts(entry.path.decode(errors="replace"))]


def named(names: Sequence[str]) -> list[str]:
    """Return the condition of `find` that a name matches one of these patterns."""
    return [word for name in names for word in ("-o", "-name", name)][1:]


async def files_below(
    call: Call, path: str, accepts: Callable[[str], bool], *, prune: Sequence[str]
) -> Tree:
    """List the files to search at `path`: the accepted files below it, or the file itself."""
    info = await start_of(call, path)
    if info.kind is not PathKind.DIRECTORY:
        if info.size_bytes > _MAX_FILE_BYTES:
            raise ToolError(f"{info.path} has {info.size_bytes} bytes, over {_MAX_FILE_BYTES}")
        folder, name = posixpath.split(info.path)
        paths = (name.encode(errors="replace"),)
        return Tree(folder, prefix_of(call, folder), paths, is_one_file=True)
    found = await walk(call, info.path, prune=prune, mark=_TOO_LARGE, files_only=True)
    chosen = await selected(found.entries, accepts)
    notes = []
    if not found.complete:
        notes.append(f"files looked at, which are not all: {len(found.entries)}; name a path")
    if large := sum(entry.is_marked for entry in chosen):
        notes.append(f"files over 64 MiB, not searched: {large}")
    # The names of matching files are returned one per line.
    if odd := sum(b"\n" in entry.path for entry in chosen):
        notes.append(f"files with a line end in their name, not searched: {odd}")
    kept = [each.path for each in chosen if not each.is_marked and b"\n" not in each.path]
    prefix = prefix_of(call, info.path)
    ordered = tuple(await off_loop(sorted, kept))
    return Tree(info.path, prefix, ordered, notes=tuple(notes), walked=found)


def prefix_of(call: Call, folder: str) -> str:
    """Return the prefix of a path in `folder` as the policy would write it."""
    inside = posixpath.relpath(folder, call.sandbox.workdir)
    if inside == ".":
        return ""
    return f"{folder.rstrip('/') if inside.startswith('..') else inside}/"
