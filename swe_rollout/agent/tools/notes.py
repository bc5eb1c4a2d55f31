"""A policy's notes to itself: `TodoWrite`, `TodoRead`, `MemoryWrite` and `MemoryRead`.

A to-do list and notes are kept in a folder of their own, so they are never in the diff.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping, Sequence
from typing import Final

from swe_rollout.agent.off_loop import off_loop
from swe_rollout.agent.tools.arguments import Arguments
from swe_rollout.agent.tools.base import Parameter, ToolError, readable
from swe_rollout.agent.tools.face import Call, Face
from swe_rollout.agent.tools.files import (
    PathInfo,
    PathKind,
    check_path,
    is_within,
    look,
    need_file,
    own_folder,
    real_paths,
    write,
)
from swe_rollout.agent.tools.lines import encoded, page
from swe_rollout.agent.tools.search.tree import Walk, named, walk

_INDEX: Final = "index.md"
_MAX_NOTE_BYTES: Final = 256 << 10
_MAX_NOTES: Final = 200
_NOTE: Final = "The note, such as index.md or plans/parser.md."
_FILE: Final = "todos.json"
_MAX_TODOS: Final = 100
_MAX_CHARACTERS: Final = 1000
_MAX_BYTES: Final = 1 << 20
_SIGNS: Final[Mapping[str, str]] = {
    "pending": "[ ]",
    "in_progress": "[~]",
    "completed": "[x]",
}
_SCHEMA: Final = Arguments.of(
    {
        "type": "object",
        "properties": {
            "todos": {
                "type": "array",
                "description": f"The whole list, at most {_MAX_TODOS}; it replaces the last one.",
                "maxItems": _MAX_TODOS,
                "items": {
                    "type": "object",
                    "properties": {
                        "content": {"type": "string", "maxLength": _MAX_CHARACTERS},
                        "status": {"type": "string", "enum": list(_SIGNS)},
                        "activeForm": {"type": "string", "maxLength": _MAX_CHARACTERS},
                        "priority": {"type": "string", "enum": ["high", "medium", "low"]},
                        "id": {"type": "string", "maxLength": _MAX_CHARACTERS},
                    },
                    "required": ["content", "status"],
                    "additionalProperties": False,
                },
            }
        },
        "required": ["todos"],
    }
)


async def _write_todos(call: Call) -> str:
    todos = call.arguments.get("todos")
    data = await off_loop(json.dumps, todos)
    await call.sandbox.write_file(await _todos_path(call), data.encode())
    return await off_loop(_todos, todos)


async def _read_todos(call: Call) -> str:
    info = await look(call, await _todos_path(call))
    if info.kind is PathKind.MISSING:
        return "the list is empty"
    if info.kind is not PathKind.FILE or info.size_bytes > _MAX_BYTES:
        raise ToolError("the list can't be read; write it again with TodoWrite")
    data = await call.sandbox.read_file(info.path)
    return await off_loop(_read, data[:_MAX_BYTES])


async def _todos_path(call: Call) -> str:
    return posixpath.join(await own_folder(call), _FILE)


def _read(data: bytes) -> str:
    """Read the file, which anything in the sandbox may have changed."""
    try:
        todos = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ToolError("the list is damaged; write it again with TodoWrite") from error
    if _SCHEMA.problems({"todos": todos}):
        raise ToolError("the list is damaged; write it again with TodoWrite")
    return _todos(todos)


def _todos(todos: object) -> str:
    lines = [
        f"{number}. {_SIGNS[each['status']]} {each['content']}"
        for number, each in enumerate(todos if isinstance(todos, list) else [], 1)
    ]
    return "\n".join(lines) or "the list is empty"


async def _read_memory(call: Call) -> str:
    folder = await own_folder(call, "memory")
    if call.text("file_path") is not None:
        info = await _note(call, folder)
        await need_file(call, info)
        return await _content(call, info)
    return await _overview(call, folder)


async def _write_memory(call: Call) -> str:
    data = encoded(call.required("content"), "content")
    if len(data) > _MAX_NOTE_BYTES:
        raise ToolError(f"a note has at most {_MAX_NOTE_BYTES} bytes, and this has {len(data)}")
    folder = await own_folder(call, "memory")
    info = await _note(call, folder)
    if info.kind is PathKind.MISSING:
        found = await _notes(call, folder)
        if len(found.entries) >= _MAX_NOTES or not found.complete:
            raise ToolError(f"there are {_MAX_NOTES} notes; replace one of them")
    else:
        await need_file(call, info)
    await write(call, info, data)
    return f"kept {posixpath.relpath(info.path, folder)}, {len(data)} bytes"


async def _note(call: Call, folder: str) -> PathInfo:
    """Look up the note that a call names. Raises ToolError if it is outside the notes' folder."""
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
    return await look(call, path)


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
        info = await look(call, f"{folder}/{_INDEX}")
        parts.append(f"{_INDEX}:\n{await _content(call, info)}")
    room = call.context.output_bytes - sum(len(part.encode()) for part in parts)
    return "\n".join([*parts, await off_loop(_listed, names, room)])


def _listed(names: Sequence[str], limit: int) -> str:
    shown = page(["notes:", *names], limit)
    rest = f"\n[more: {shown.left}]" if shown.left else ""
    return f"{shown.text}{rest}"


TODO_WRITE: Final = Face.of(
    _write_todos,
    "TodoWrite",
    "Write down what is to be done: the whole list, each with its status "
    "(pending, in_progress or completed). It is not part of your work.",
    schema=_SCHEMA,
)
TODO_READ: Final = Face.of(_read_todos, "TodoRead", "Read the list that TodoWrite wrote last.")
MEMORY_READ: Final = Face.of(
    _read_memory,
    "MemoryRead",
    f"Read a note that MemoryWrite wrote; without file_path, {_INDEX} and the names of all notes.",
    Parameter("file_path", _NOTE),
)
MEMORY_WRITE: Final = Face.of(
    _write_memory,
    "MemoryWrite",
    "Keep a note for later in this session: create it, or replace all of it. Notes are "
    f"outside the repository and never part of your work. {_INDEX} is the first to be "
    "read.",
    Parameter("file_path", _NOTE, required=True),
    Parameter("content", "The whole note.", required=True),
)
