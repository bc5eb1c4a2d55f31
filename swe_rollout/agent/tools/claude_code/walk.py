"""Walk a folder of the sandbox, with `find` alone: bounded, and honest about what it left out."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from swe_rollout.agent.off_loop import off_loop
from swe_rollout.agent.tools.base import ToolError
from swe_rollout.agent.tools.claude_code.call import Call
from swe_rollout.agent.tools.claude_code.files import check_path, need_file
from swe_rollout.agent.tools.paths import PathInfo, PathKind, look

MAX_BYTES = 4 << 20
"""Bytes of names, some 70,000; a tree of more is walked in part."""
_STEP = 2000
"""Paths looked at one by one at a time: the thread that does it is shared."""
REPOSITORY_FOLDERS = (".git", ".hg", ".svn", ".bzr")
_WALK = 'cd -- "$1" >/dev/null && limit=$2 && shift 2 && find . -mindepth 1 "$@" | head -c "$limit"'


@dataclass(frozen=True, slots=True)
class Entry:
    """A path of a walk, relative to where it began."""

    path: bytes
    is_marked: bool
    """Whether the walk's `mark` holds for it."""


@dataclass(frozen=True, slots=True)
class Walk:
    """What a walk found, in the order of `find`."""

    entries: tuple[Entry, ...]
    complete: bool
    """Whether these are all: neither the bound of bytes nor that of time was reached."""


async def start_of(call: Call, name: str = "path") -> PathInfo:
    """Look up the folder or file at which a search starts; the working folder if none is given."""
    path = call.text(name) or "."
    check_path(path, name)
    info = await look(call.sandbox, path, timeout_s=call.remaining_s)
    if info.kind is not PathKind.DIRECTORY:
        await need_file(call, info)
        return info
    # `..` behind a link is not the folder that the text says.
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
    """Walk `folder`. `prune` and `mark` are conditions of `find`: what to leave out, what to mark.

    `files_only` leaves out all but regular files; links are never followed. Raises ToolError for a
    folder that can't be entered.
    """
    levels = () if depth is None else ("-maxdepth", str(depth))
    kind = ("-type", "f") if files_only else ()
    # What is marked is printed twice in a row: no name can be mistaken for a mark.
    expression = ["(", *prune, ")", "-prune", "-o", *kind, "-print0", *mark, "-print0"]
    result = await call.sandbox.exec(
        ["/bin/sh", "-c", _WALK, "sh", folder, str(max_bytes), *levels, *expression],
        timeout_s=call.remaining_s,
        max_output=max_bytes,
    )
    if not result.stdout and not result.ok:
        raise ToolError(f"{folder} can't be searched")
    entries = await off_loop(_entries, result.stdout)
    complete = not result.timed_out and result.stdout_bytes < max_bytes
    return Walk(entries, complete)


async def selected(entries: Sequence[Entry], accepts: Callable[[str], bool]) -> list[Entry]:
    """Return the entries whose path is accepted; the event loop is free meanwhile."""
    chosen: list[Entry] = []
    rest = iter(entries)
    while some := list(islice(rest, _STEP)):
        chosen += await off_loop(_selected, some, accepts)
    return chosen


def _selected(entries: Sequence[Entry], accepts: Callable[[str], bool]) -> list[Entry]:
    return [entry for entry in entries if accepts(entry.path.decode(errors="replace"))]


def named(names: Sequence[str]) -> list[str]:
    """Return the condition of `find` that a name matches one of these patterns."""
    words = [word for name in names for word in ("-o", "-name", name)]
    return words[1:]


def prefix_of(call: Call, folder: str) -> str:
    """Return what stands before a path in `folder` as the policy would write it."""
    inside = posixpath.relpath(folder, call.sandbox.workdir)
    if inside == ".":
        return ""
    return f"{folder if inside.startswith('..') else inside}/"


def _entries(output: bytes) -> tuple[Entry, ...]:
    # A walk that was cut ends in half a name.
    names = output.split(b"\0")[:-1]
    entries: list[Entry] = []
    for name in names:
        path = name.removeprefix(b"./")
        if entries and entries[-1].path == path:
            entries[-1] = Entry(path, is_marked=True)
        else:
            entries.append(Entry(path, is_marked=False))
    return tuple(entries)
