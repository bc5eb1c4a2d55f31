"""The `Glob` tool: files by the pattern of their path."""

from __future__ import annotations

from collections.abc import Sequence

from swe_rollout.agent.off_loop import off_loop
from swe_rollout.agent.tools.base import Parameter, ToolError, ToolSpec, readable
from swe_rollout.agent.tools.claude_code.call import Call, ClaudeCodeTool
from swe_rollout.agent.tools.claude_code.globs import Glob as Pattern
from swe_rollout.agent.tools.claude_code.text import Page, page
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


class Glob(ClaudeCodeTool):
    """Finds files."""

    def __init__(self, name: str = "Glob") -> None:
        """Offer the tool under `name`."""
        super().__init__(
            ToolSpec(
                name,
                "Find files by a glob such as **/*.py or src/**/*.{c,h}, relative to path; sorted. "
                "Hidden files are found too, those in .git are not.",
                (
                    Parameter("pattern", "The glob; ** is any folders.", required=True),
                    Parameter("path", "The folder to search; the working folder if not given."),
                ),
            )
        )

    async def call(self, call: Call) -> str:
        text = call.required("pattern")
        info = await start_of(call)
        if info.kind is not PathKind.DIRECTORY:
            raise ToolError(f"{info.path} is a file, and path must be a folder")
        pattern = Pattern.of(_relative(text, info.path))
        found = await walk(call, info.path, prune=named(REPOSITORY_FOLDERS), files_only=True)
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
    """Return a pattern without the folder that an absolute one begins with."""
    if not pattern.startswith("/"):
        return pattern
    inside = pattern.removeprefix(f"{folder.rstrip('/')}/")
    if inside == pattern:
        raise ToolError(f"the pattern begins outside {folder}; give that folder as path")
    return inside
