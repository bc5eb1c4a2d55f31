"""Claude Code's faces for files: `Read`, `Write`, `Edit` and `MultiEdit`.

An edit replaces exact text; every other byte stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import validate_call

from swe_rollout.agent.off_loop import off_loop
from swe_rollout.agent.tools.arguments import Arguments
from swe_rollout.agent.tools.base import Parameter, ParameterType, ToolError
from swe_rollout.agent.tools.face import Call, Face, renamed
from swe_rollout.agent.tools.files import (
    MAX_FILE_BYTES,
    MAX_LINES,
    Folders,
    PathInfo,
    PathKind,
    check_allowed,
    find,
    need_file,
    need_text,
    read,
    script,
    write,
)
from swe_rollout.agent.tools.lines import Wanted, encoded, lines_of, numbered, page, snippet

PAGE_BYTES: Final = 256 << 10
MAX_EDITS: Final = 100
_PAGE_LINES: Final = 2000
_ECHO_LINES: Final = 8
_LINES: Final = 'tail -n "+$2" -- "$1" | head -n "$3" | head -c "$4"'
_PATH: Final = Parameter("file_path", "The file, such as src/module.py.", required=True)


@dataclass(frozen=True, slots=True)
class _Window:
    """Lines of a file from `first` on."""

    first: int
    lines: list[bytes]
    total: int | None
    """Number of lines in the whole file; None, for unknown, if it is large."""
    more: bool
    """Whether more lines follow."""


async def _read(call: Call) -> str:
    first = call.integer("offset") or 1
    count = call.integer("limit", least=1) or _PAGE_LINES
    info = await find(call, "file_path")
    await need_file(call, info)
    window = await _window(call, info, first, min(count, _PAGE_LINES))
    return await off_loop(_page, info, window, call.context.output_bytes)


async def _window(call: Call, info: PathInfo, first: int, count: int) -> _Window:
    """Fetch a whole file of moderate size, or only the lines of a larger one."""
    if info.size_bytes <= MAX_FILE_BYTES:
        data = await call.sandbox.read_file(info.path)
        need_text(info, data)
        total = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
        if total <= MAX_LINES and len(data) <= MAX_FILE_BYTES:
            lines = await off_loop(lines_of, data)
            if first > total and data:
                raise ToolError(f"{info.path} ends with line {total}; offset is beyond it")
            end = first - 1 + count
            return _Window(first, lines[first - 1 : end], total, end < total)
    # One extra line shows whether there are more.
    bounds = (str(first), str(count + 1), str(PAGE_BYTES))
    result = await script(call, _LINES, info.path, *bounds)
    if result.timed_out:
        raise ToolError(f"{info.path} has {info.size_bytes} bytes: reading took too long")
    if not result.stdout:
        raise ToolError(f"{info.path} has no line {first}, or can't be read")
    need_text(info, result.stdout)
    lines = await off_loop(lines_of, result.stdout)
    is_cut = len(result.stdout) >= PAGE_BYTES
    if is_cut and len(lines) > 1:
        lines.pop()
    return _Window(first, lines[:count], None, is_cut or len(lines) > count)


def _page(info: PathInfo, window: _Window, limit: int) -> str:
    if not window.lines:
        return f"{info.path} is empty"
    shown = page(numbered(window.lines, window.first), min(limit, PAGE_BYTES))
    last = window.first + len(shown.lines) - 1
    if not window.more and len(shown.lines) == len(window.lines):
        return shown.text
    of = f"of {window.total}" if window.total is not None else f"({info.size_bytes} bytes in all)"
    return (
        f"{shown.text}\n[lines {window.first} to {last} {of}; go on with offset {last + 1}, or "
        "search with Grep]"
    )


READ: Final = Face.of(
    _read,
    "Read",
    f"Read a text file with line numbers: up to {_PAGE_LINES} lines from offset on. "
    "What does not fit is named, with the offset that goes on there.",
    _PATH,
    Parameter("offset", "The first line, from 1.", ParameterType.INTEGER),
    Parameter("limit", "How many lines.", ParameterType.INTEGER),
)
K8S_FILE_READ: Final = READ.named("k8s_file_read")


@validate_call
def write_face(*, folders: Folders = ()) -> Face:
    """Offer `Write`: write a whole file with exactly this text; an existing one keeps its mode."""

    async def act(call: Call) -> str:
        info = await find(call, "file_path")
        if info.kind is not PathKind.MISSING:
            await need_file(call, info)
        await check_allowed(call, folders, info.path)
        data = encoded(call.required("content"), "content")
        await write(call, info, data)
        done = "created" if info.kind is PathKind.MISSING else "replaced"
        shown = await off_loop(snippet, data, 0, 0, around=_ECHO_LINES, most=_ECHO_LINES)
        return f"{done} {info.path}, {len(data)} bytes; {shown}"

    return Face.of(
        act,
        "Write",
        "Create a file, or replace all of an existing one, with exactly this content. "
        "Missing folders are made.",
        _PATH,
        Parameter("content", "The whole content of the file.", required=True),
    )


_CRLF_NOTE: Final = (
    "In a file whose lines all end in \\r\\n, \\n in old_string and new_string stands for \\r\\n."
)
_TEXTS: Final = (
    Parameter(
        "old_string",
        "The text to replace, with whitespace as in the file and enough context to be unique.",
        required=True,
    ),
    Parameter("new_string", "The text to put there; empty to delete.", required=True),
    Parameter("replace_all", "Replace every occurrence, not exactly one.", ParameterType.BOOLEAN),
)
_EDITS: Final = {
    "type": "array",
    "description": f"The replacements, 1 to {MAX_EDITS}; each sees what those before did.",
    "minItems": 1,
    "maxItems": MAX_EDITS,
    "items": {
        "type": "object",
        "properties": {each.name: each.schema() for each in _TEXTS},
        "required": ["old_string", "new_string"],
        "additionalProperties": False,
    },
}


@dataclass(frozen=True, slots=True)
class Replacement:
    """One replacement of exact text."""

    old: str
    new: str
    everywhere: bool = False


@dataclass(frozen=True, slots=True)
class Edited:
    """A file's new content, and the first span that the last replacement wrote."""

    data: bytes
    at: int
    size: int
    count: int
    """Number of occurrences that all replacements together replaced."""


@validate_call
def edit_face(*, folders: Folders = ()) -> Face:
    """Offer `Edit`: replace text that occurs exactly once, or everywhere; empty creates a file."""

    async def act(call: Call) -> str:
        texts = call.required("old_string"), call.required("new_string")
        return await _apply(call, folders, [Replacement(*texts, call.flag("replace_all"))])

    return Face.of(
        act,
        "Edit",
        "Replace old_string, which must occur exactly once in the file, by new_string. "
        f"An empty old_string creates the file. {_CRLF_NOTE}",
        _PATH,
        *_TEXTS,
    )


@validate_call
def multi_edit_face(*, folders: Folders = ()) -> Face:
    """Offer `MultiEdit`: make several replacements in one file, in order, all or none."""

    async def act(call: Call) -> str:
        edits = [
            Replacement(each["old_string"], each["new_string"], each.get("replace_all") is True)
            for each in call.items("edits")
        ]
        return await _apply(call, folders, edits)

    return Face.of(
        act,
        "MultiEdit",
        "Make several replacements in one file, one after the other, as Edit makes one. "
        f"If one of them fails, nothing is changed. {_CRLF_NOTE}",
        schema=Arguments.of(
            {
                "type": "object",
                "properties": {"file_path": _PATH.schema(), "edits": _EDITS},
                "required": ["file_path", "edits"],
            }
        ),
    )


async def _apply(call: Call, folders: Sequence[str], edits: Sequence[Replacement]) -> str:
    info = await find(call, "file_path")
    if info.path.endswith(".ipynb"):
        raise ToolError(f"{info.path} is a notebook; change it with NotebookEdit")
    await check_allowed(call, folders, info.path)
    if not edits[0].old:
        return await _create(call, info, edits)
    data = await read(call, info)
    need_text(info, data)
    done = await off_loop(replaced, data, edits, info.path)
    await write(call, info, done.data)
    times = "" if done.count == len(edits) else f", {done.count} occurrences"
    shown = await off_loop(snippet, done.data, done.at, done.size)
    return f"edited {info.path}{times}; {shown}"


async def _create(call: Call, info: PathInfo, edits: Sequence[Replacement]) -> str:
    if info.kind is not PathKind.MISSING:
        await need_file(call, info)
        if info.size_bytes:
            raise ToolError(f"old_string is empty, which creates a file, but {info.path} exists")
    first = encoded(edits[0].new, "new_string")
    data = (await off_loop(replaced, first, edits[1:], info.path)).data
    await write(call, info, data)
    return f"created {info.path}, {len(data)} bytes"


def replaced(data: bytes, edits: Sequence[Replacement], name: str) -> Edited:
    """Make replacements in order. Raises ToolError, which names the first that can't be made.

    Nothing is written. `data` is the original content; messages call the file `name`.
    """
    done = Edited(data, 0, 0, 0)
    for number, edit in enumerate(edits, 1):
        try:
            done = _replaced(done, edit, name)
        except ToolError as error:
            where = f"edit {number} of {len(edits)}: " if len(edits) > 1 else ""
            raise ToolError(f"{where}{error}") from error
    return done


def _replaced(before: Edited, edit: Replacement, name: str) -> Edited:
    data = before.data
    old = _with_line_ends(data, encoded(edit.old, "old_string"))
    new = _with_line_ends(data, encoded(edit.new, "new_string"))
    if not old:
        raise ToolError("old_string is empty")
    if old == new:
        raise ToolError("old_string and new_string are the same: nothing would change")
    wanted = Wanted(old, "old_string", advice=", or set replace_all")
    count = data.count(old) if edit.everywhere else 0
    at = data.find(old) if count else wanted.place_in(data, name)
    count = count or 1
    size = len(data) + count * (len(new) - len(old))
    # Checked beforehand: four million replacements with a long text would fill any memory.
    if size > MAX_FILE_BYTES:
        raise ToolError(f"the file would have {size} bytes, over {MAX_FILE_BYTES}")
    return Edited(data.replace(old, new, count), at, len(new), before.count + count)


def _with_line_ends(data: bytes, text: bytes) -> bytes:
    r"""Return the text with `\r\n` if all lines of the file end so and the text has no `\r`."""
    if b"\n" not in text or b"\r" in text:
        return text
    crlf = data.count(b"\r\n")
    return text.replace(b"\n", b"\r\n") if crlf and crlf == data.count(b"\n") else text


replace_face = renamed(write_face, "Replace")
k8s_file_edit = renamed(edit_face, "k8s_file_edit")
