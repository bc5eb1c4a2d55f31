"""The `MemoryRead` and `MemoryWrite` tools: notes of an episode, in a folder of their own."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from swe_rollout.agent.off_loop import off_loop
from swe_rollout.agent.tools.base import Parameter, ToolError, ToolSpec, readable
from swe_rollout.agent.tools.claude_code.call import Call, ClaudeCodeTool
from swe_rollout.agent.tools.claude_code.files import (
    check_path,
    is_within,
    need_file,
    real_paths,
    write,
)
from swe_rollout.agent.tools.claude_code.own_folder import own_folder
from swe_rollout.agent.tools.claude_code.text import encoded, page
from swe_rollout.agent.tools.claude_code.walk import Walk, named, walk
from swe_rollout.agent.tools.paths import PathInfo, PathKind, look

_INDEX = "index.md"
_MAX_NOTE_BYTES = 256 << 10
_MAX_FILES = 200
_PATH = Parameter("file_path", "The note, such as index.md or plans/parser.md.")


class MemoryRead(ClaudeCodeTool):
    """Shows a note, or the index and what else there is."""

    def __init__(self, name: str = "MemoryRead") -> None:
        """Offer the tool under `name`."""
        super().__init__(
            ToolSpec(
                name,
                f"Read a note that MemoryWrite wrote; without file_path, {_INDEX} and the names of "
                "all notes.",
                (_PATH,),
            )
        )

    async def call(self, call: Call) -> str:
        folder = await _folder(call)
        if call.text("file_path") is not None:
            info = await _note(call, folder)
            await need_file(call, info)
            return await _content(call, info)
        return await _overview(call, folder)


class MemoryWrite(ClaudeCodeTool):
    """Writes a note."""

    def __init__(self, name: str = "MemoryWrite") -> None:
        """Offer the tool under `name`."""
        super().__init__(
            ToolSpec(
                name,
                "Keep a note for later in this session: create it, or replace all of it. Notes are "
                f"outside the repository and never part of your work. {_INDEX} is the first to be "
                "read.",
                (
                    Parameter(_PATH.name, _PATH.description, required=True),
                    Parameter("content", "The whole note.", required=True),
                ),
            )
        )

    async def call(self, call: Call) -> str:
        data = encoded(call.required("content"), "content")
        if len(data) > _MAX_NOTE_BYTES:
            raise ToolError(f"a note has at most {_MAX_NOTE_BYTES} bytes, and this has {len(data)}")
        folder = await _folder(call)
        info = await _note(call, folder)
        if info.kind is PathKind.MISSING:
            found = await _notes(call, folder)
            if len(found.entries) >= _MAX_FILES or not found.complete:
                raise ToolError(f"there are {_MAX_FILES} notes; replace one of them")
        else:
            await need_file(call, info)
        await write(call, info, data)
        return f"kept {posixpath.relpath(info.path, folder)}, {len(data)} bytes"


async def _folder(call: Call) -> str:
    return await own_folder(call, "memory")


async def _note(call: Call, folder: str) -> PathInfo:
    """Look up the note that a call names; ToolError when it would lie outside the notes' folder."""
    name = call.required("file_path")
    check_path(name, "file_path")
    for absolute in (f"{folder}/", "/memory/"):
        name = name.removeprefix(absolute)
    inside = posixpath.normpath(name)
    if inside.startswith(("/", "../")) or inside in {".", ".."}:
        raise ToolError("file_path must name a note in the memory, such as plans/parser.md")
    path = posixpath.join(folder, inside)
    (real,) = await real_paths(call, [path])
    if not is_within(real, folder):
        raise ToolError("file_path leads out of the memory by a link")
    return await look(call.sandbox, path, timeout_s=call.remaining_s)


async def _content(call: Call, info: PathInfo) -> str:
    if info.size_bytes > _MAX_NOTE_BYTES:
        raise ToolError(f"the note has {info.size_bytes} bytes, over {_MAX_NOTE_BYTES}")
    data = await call.sandbox.read_file(info.path)
    return readable(data[:_MAX_NOTE_BYTES]) or "the note is empty"


async def _notes(call: Call, folder: str) -> Walk:
    return await walk(call, folder, prune=named([".git"]), files_only=True)


async def _overview(call: Call, folder: str) -> str:
    found = await _notes(call, folder)
    names = sorted(readable(entry.path) for entry in found.entries)
    if not names:
        return "the memory is empty"
    parts = []
    if _INDEX in names:
        info = await look(call.sandbox, f"{folder}/{_INDEX}", timeout_s=call.remaining_s)
        parts.append(f"{_INDEX}:\n{await _content(call, info)}")
    room = call.context.output_bytes - sum(len(part.encode()) for part in parts)
    return "\n".join([*parts, await off_loop(_listed, names, room)])


def _listed(names: Sequence[str], limit: int) -> str:
    shown = page(["notes:", *names], limit)
    rest = f"\n[more: {shown.left}]" if shown.left else ""
    return f"{shown.text}{rest}"
