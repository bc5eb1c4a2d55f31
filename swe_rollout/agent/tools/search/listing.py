"""Claude Code's faces for the file tree: `Glob` and `LS`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, takewhile
from typing import Final

from swe_rollout.agent.off_loop import off_loop
from swe_rollout.agent.tools.base import Parameter, ParameterType, ToolError, readable
from swe_rollout.agent.tools.face import Call, Face
from swe_rollout.agent.tools.files import PathKind
from swe_rollout.agent.tools.lines import Page, page
from swe_rollout.agent.tools.search.glob import Glob
from swe_rollout.agent.tools.search.tree import (
    REPOSITORY_FOLDERS,
    Entry,
    Walk,
    named,
    prefix_of,
    selected,
    start_of,
    walk,
)

_PRUNE: Final = named(REPOSITORY_FOLDERS)
_MAX_ENTRIES: Final = 1000
_MAX_IGNORED: Final = 32
_NOTE_BYTES: Final = 120
_MAX_NAMES_BYTES: Final = 1 << 20
_DEPTHS: Final = (None, 3, 1)
"""Depths to try in turn, until the list of names is of moderate size."""


async def _glob(call: Call) -> str:
    text = call.required("pattern")
    info = await start_of(call, call.text("path") or ".")
    if info.kind is not PathKind.DIRECTORY:
        raise ToolError(f"{info.path} is a file, and path must be a folder")
    pattern = Glob.of(_relative(text, info.path))
    found = await walk(call, info.path, prune=_PRUNE, files_only=True)
    matching = await selected(found.entries, pattern.matches)
    if not matching:
        rest = "" if found.complete else "; the tree is too large to search: name a path"
        return f"no file matches {text}{rest}"
    prefix = prefix_of(call, info.path)
    shown = await off_loop(_page, matching, prefix, call.context.output_bytes)
    notes = [f"more files that match: {shown.left}; narrow the pattern"] if shown.left else []
    if not found.complete:
        notes.append(f"files looked at, which are not all: {len(found.entries)}; name a path")
    return shown.text + "".join(f"\n[{note}]" for note in notes)


def _page(matching: Sequence[Entry], prefix: str, limit: int) -> Page:
    return page(sorted(f"{prefix}{readable(entry.path)}" for entry in matching), limit)


def _relative(pattern: str, folder: str) -> str:
    """Return a pattern without the folder with which an absolute one starts."""
    if not pattern.startswith("/"):
        return pattern
    inside = pattern.removeprefix(f"{folder.rstrip('/')}/")
    if inside == pattern:
        raise ToolError(f"the pattern begins outside {folder}; give that folder as path")
    return inside


GLOB: Final = Face.of(
    _glob,
    "Glob",
    "Find files by a glob such as **/*.py or src/**/*.{c,h}, relative to path; sorted. "
    "Hidden files are found too, those in .git are not.",
    Parameter("pattern", "The glob; ** is any folders.", required=True),
    Parameter("path", "The folder to search; the working folder if not given."),
)


async def _ls(call: Call) -> str:
    patterns = call.items("ignore")
    if len(patterns) > _MAX_IGNORED:
        raise ToolError(f"ignore has at most {_MAX_IGNORED} globs")
    ignored = [Glob.of(str(each).removesuffix("/"), anywhere=True) for each in patterns]
    info = await start_of(call, call.text("path") or ".")
    if info.kind is not PathKind.DIRECTORY:
        raise ToolError(f"{info.path} is a file; show it with Read")
    prune = named([".?*", "__pycache__"])
    for depth in _DEPTHS:
        found = await walk(call, info.path, prune=prune, depth=depth, max_bytes=_MAX_NAMES_BYTES)
        if found.complete:
            break
    unseen = "" if depth is None else f", and what is below level {depth} is not counted"
    limit = call.context.output_bytes
    return await off_loop(_tree, info.path, found, ignored, limit=limit, unseen=unseen)


def _tree(root: str, found: Walk, ignored: Sequence[Glob], *, limit: int, unseen: str) -> str:
    paths = [
        (tuple(readable(entry.path).replace("\n", "?").split("/")), entry.is_marked)
        for entry in found.entries
    ]
    kept = [each for each in paths if not _is_ignored(each[0], ignored)]
    # Whole levels first, so that a large folder does not hide its neighbours.
    kept.sort(key=lambda each: (len(each[0]), each[0]))
    count = min(_MAX_ENTRIES, _fitting((_line(*each) for each in kept), limit - len(root)))
    lines = [f"{root.rstrip('/')}/", *(_line(*each) for each in sorted(kept[:count]))]
    at_least = "" if found.complete else "at least "
    if count < len(kept) or unseen or at_least:
        lines.append(f"[{count} of {at_least}{len(kept)} entries shown{unseen}]")
    elif not kept:
        lines.append(
            "[all of it is ignored]" if paths else "[empty, or nothing but hidden entries]"
        )
    return "\n".join(lines)


def _fitting(lines: Iterable[str], limit: int) -> int:
    """Return how many lines fit together with a note below them."""
    sizes = accumulate(len(line.encode(errors="replace")) + 1 for line in lines)
    return sum(1 for _ in takewhile(lambda size: size <= limit - _NOTE_BYTES, sizes))


def _line(names: tuple[str, ...], is_folder: bool) -> str:  # noqa: FBT001 - half of an entry
    return f"{'  ' * len(names)}{names[-1]}{'/' if is_folder else ''}"


def _is_ignored(names: tuple[str, ...], ignored: Sequence[Glob]) -> bool:
    # Everything below an omitted folder is omitted too.
    paths = ["/".join(names[: count + 1]) for count in range(len(names))] if ignored else []
    return any(each.matches(path) for each in ignored for path in paths)


LS: Final = Face.of(
    _ls,
    "LS",
    f"List a folder as a tree of at most {_MAX_ENTRIES} entries, the upper levels "
    "first. Hidden entries and __pycache__ are left out.",
    Parameter("path", "The folder.", required=True),
    Parameter("ignore", "Globs of what to leave out.", ParameterType.STRINGS),
)
