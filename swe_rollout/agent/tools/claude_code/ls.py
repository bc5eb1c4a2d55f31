"""The `LS` tool: a folder as a tree, the upper levels first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, takewhile

from swe_rollout.agent.off_loop import off_loop
from swe_rollout.agent.tools.base import Parameter, ParameterType, ToolError, ToolSpec, readable
from swe_rollout.agent.tools.claude_code.call import Call, ClaudeCodeTool
from swe_rollout.agent.tools.claude_code.globs import Glob
from swe_rollout.agent.tools.claude_code.walk import Walk, named, start_of, walk
from swe_rollout.agent.tools.paths import PathKind

_MAX_ENTRIES = 1000
_MAX_IGNORED = 32
_NOTE_BYTES = 120
_MAX_NAMES_BYTES = 1 << 20
_DEPTHS = (None, 3, 1)
"""Levels to list, until the names of that many are of moderate size."""


class LS(ClaudeCodeTool):
    """Lists a folder and what is below it."""

    def __init__(self, name: str = "LS") -> None:
        """Offer the tool under `name`."""
        super().__init__(
            ToolSpec(
                name,
                f"List a folder as a tree of at most {_MAX_ENTRIES} entries, the upper levels "
                "first. Hidden entries and __pycache__ are left out.",
                (
                    Parameter("path", "The folder.", required=True),
                    Parameter("ignore", "Globs of what to leave out.", ParameterType.STRINGS),
                ),
            )
        )

    async def call(self, call: Call) -> str:
        ignored = _ignored(call.arguments.get("ignore"))
        info = await start_of(call)
        if info.kind is not PathKind.DIRECTORY:
            raise ToolError(f"{info.path} is a file; show it with Read")
        found = Walk((), complete=False)
        for depth in _DEPTHS:
            found = await walk(
                call,
                info.path,
                prune=named([".?*", "__pycache__"]),
                depth=depth,
                max_bytes=_MAX_NAMES_BYTES,
            )
            if found.complete:
                break
        unseen = "" if depth is None else f", and what is below level {depth} is not counted"
        return await off_loop(
            _tree, info.path, found, ignored, limit=call.context.output_bytes, unseen=unseen
        )


def _ignored(patterns: object) -> list[Glob]:
    globs = patterns if isinstance(patterns, list) else []
    if len(globs) > _MAX_IGNORED:
        raise ToolError(f"ignore has at most {_MAX_IGNORED} globs")
    return [Glob.of(str(each).removesuffix("/"), anywhere=True) for each in globs]


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
    """Return how many lines fit, with a note below them."""
    sizes = accumulate(len(line.encode(errors="replace")) + 1 for line in lines)
    return sum(1 for _ in takewhile(lambda size: size <= limit - _NOTE_BYTES, sizes))


def _line(names: tuple[str, ...], is_folder: bool) -> str:  # noqa: FBT001 - half of an entry
    return f"{'  ' * len(names)}{names[-1]}{'/' if is_folder else ''}"


def _is_ignored(names: tuple[str, ...], ignored: Sequence[Glob]) -> bool:
    if not ignored:
        return False
    # What is below a folder that is left out is left out too.
    paths = ["/".join(names[: count + 1]) for count in range(len(names))]
    return any(each.matches(path) for each in ignored for path in paths)
