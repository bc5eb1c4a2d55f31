"""The files that a search looks at: chosen by glob and language, and what was left out."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from swe_rollout.agent.off_loop import off_loop
from swe_rollout.agent.tools.base import ToolError
from swe_rollout.agent.tools.claude_code.call import Call
from swe_rollout.agent.tools.claude_code.globs import Glob
from swe_rollout.agent.tools.claude_code.walk import (
    REPOSITORY_FOLDERS,
    Entry,
    named,
    prefix_of,
    selected,
    start_of,
    walk,
)
from swe_rollout.agent.tools.paths import PathKind

_MAX_FILE_BYTES: Final = 64 << 20
_TOO_LARGE: Final = ("-size", f"+{_MAX_FILE_BYTES // 512}")
"""In blocks of 512 bytes. A file with holes costs nothing to make, hours to read."""
_TYPES: Final[Mapping[str, str]] = {
    "c": "*.{c,h}",
    "cpp": "*.{cpp,cc,cxx,hpp,hh,hxx,h,inl}",
    "cs": "*.cs",
    "css": "*.{css,scss,sass,less}",
    "go": "*.go",
    "html": "*.{html,htm,ejs}",
    "java": "*.{java,jsp}",
    "js": "*.{js,jsx,cjs,mjs,vue}",
    "json": "*.json",
    "kotlin": "*.{kt,kts}",
    "lua": "*.lua",
    "make": "{Makefile,makefile,GNUmakefile,*.mk,*.mak}",
    "md": "*.{md,markdown,mdx}",
    "php": "*.php",
    "py": "*.{py,pyi}",
    "ruby": "{*.rb,*.rake,Gemfile,Rakefile}",
    "rust": "*.rs",
    "scala": "*.{scala,sbt}",
    "sh": "*.{sh,bash,zsh,ksh}",
    "sql": "*.sql",
    "swift": "*.swift",
    "toml": "*.toml",
    "ts": "*.{ts,tsx,cts,mts}",
    "txt": "*.txt",
    "xml": "*.{xml,xsd,xsl,svg}",
    "yaml": "*.{yaml,yml}",
}


@dataclass(frozen=True, slots=True)
class Candidates:
    """Files to search, relative to a folder."""

    folder: str
    prefix: str
    """What stands before a path as the policy would write it."""
    paths: tuple[bytes, ...]
    notes: tuple[str, ...] = ()
    """What was left out that might have been meant."""


def listed_types() -> str:
    """Return the names of the known languages."""
    return ", ".join(_TYPES)


async def find_candidates(call: Call) -> Candidates:
    """List the files that `path`, `glob` and `type` of a call choose."""
    accepts = _filter(call)
    info = await start_of(call)
    if info.kind is not PathKind.DIRECTORY:
        if info.size_bytes > _MAX_FILE_BYTES:
            raise ToolError(f"{info.path} has {info.size_bytes} bytes, over {_MAX_FILE_BYTES}")
        folder, name = posixpath.split(info.path)
        return Candidates(folder, prefix_of(call, folder), (name.encode(errors="replace"),))
    found = await walk(
        call, info.path, prune=named(REPOSITORY_FOLDERS), mark=_TOO_LARGE, files_only=True
    )
    chosen = await selected(found.entries, accepts)
    notes = []
    if not found.complete:
        notes.append(f"files looked at, which are not all: {len(found.entries)}; name a path")
    if large := sum(entry.is_marked for entry in chosen):
        notes.append(f"files over 64 MiB, not searched: {large}")
    # The names of matching files come back one a line.
    if odd := sum(b"\n" in entry.path for entry in chosen):
        notes.append(f"files with a line end in their name, not searched: {odd}")
    paths = await off_loop(_searchable, chosen)
    return Candidates(info.path, prefix_of(call, info.path), paths, tuple(notes))


def _searchable(entries: list[Entry]) -> tuple[bytes, ...]:
    kept = (each.path for each in entries if not each.is_marked and b"\n" not in each.path)
    return tuple(sorted(kept))


def _filter(call: Call) -> Callable[[str], bool]:
    """Return which relative paths a call's `glob` and `type` accept."""
    text, kind = call.text("glob"), call.text("type")
    if kind is not None and kind not in _TYPES:
        raise ToolError(f"there is no type {kind[:80]!r}; there are {listed_types()}")
    of_type = None if kind is None else Glob.of(_TYPES[kind], anywhere=True)
    if not text:
        return lambda path: of_type is None or of_type.matches(path)
    is_negated = text.startswith("!")
    glob = Glob.of(text.removeprefix("!").removeprefix("/"), anywhere=True)

    def accepts(path: str) -> bool:
        if of_type is not None and not of_type.matches(path):
            return False
        return glob.matches(path) is not is_negated

    return accepts
