"""The editors: look at files and change them, byte for byte.

Only the span named by a call changes: line ends, tabs, encodings and file modes stay as they are.
`str_replace_editor` and `file_editor` are the same tool under two names; the latter also undoes
edits and shows skeletons.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic.dataclasses import dataclass as checked_dataclass

from swe_rollout.agent.off_loop import off_loop
from swe_rollout.agent.tools.base import (
    CONFIGURATION,
    Tool,
    ToolContext,
    ToolError,
    ToolSpec,
    cut_middle,
    readable,
    text_argument,
)
from swe_rollout.agent.tools.editor_spec import Command, editor_spec
from swe_rollout.agent.tools.file_lines import (
    line_of,
    lines_of,
    match_in_line,
    numbered,
    only_match,
)
from swe_rollout.agent.tools.paths import PathInfo, PathKind, listing, look, remove
from swe_rollout.agent.tools.skeleton import bodies
from swe_rollout.agent.tools.undo import Edit, UndoHistory, digest_of
from swe_rollout.errors import InternalError
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.types.turn import Observation

MAX_FILE_BYTES = 4 << 20
_MAX_LINES = 100_000
"""Line by line, a file of nothing but newlines would hold the event loop for seconds."""
_SNIPPET_LINES = 4
_MAX_FOLDERS = 128
_TEXT_PROBE_BYTES = 8192


_DOES_NOT_PARSE: Final = 9
_PARSE: Final = f"""
import sys
try:
    compile(open(sys.argv[1], "rb").read(), sys.argv[1], "exec", dont_inherit=True)
except (SyntaxError, ValueError) as error:
    print("line", getattr(error, "lineno", None), "-", getattr(error, "msg", error))
    sys.exit({_DOES_NOT_PARSE})
"""
_WITHOUT_UNDO: Final = tuple(each for each in Command if each is not Command.UNDO_EDIT)


@checked_dataclass(frozen=True, config=CONFIGURATION)
class StrReplaceEditor(Tool):
    """Views, creates and edits files. Errors are observations; a failed call changes nothing."""

    commands: tuple[Command, ...] = _WITHOUT_UNDO
    """What the policy may tell it; `[view]` makes it read files alone."""
    concise: bool = False
    """Whether `view` can leave out the bodies of a Python file's functions."""
    check_syntax: bool = False
    """Whether the policy is told when an edit leaves a Python file that does not parse; needs
    `python3` in the image."""

    def __post_init__(self) -> None:
        if not self.commands:
            raise ValueError("commands is empty")

    @property
    def spec(self) -> ToolSpec:
        return editor_spec("str_replace_editor", self.commands, concise=self.concise)

    async def run(
        self, arguments: Mapping[str, object], sandbox: Sandbox, context: ToolContext
    ) -> Observation:
        return await edit(arguments, sandbox, context, check_syntax=self.check_syntax)


@checked_dataclass(frozen=True, config=CONFIGURATION)
class FileEditor(StrReplaceEditor):
    """An editor that also undoes edits and shows skeletons of Python files."""

    commands: tuple[Command, ...] = tuple(Command)
    """What the policy may tell it; `[view]` makes it read files alone."""
    concise: bool = True
    """Whether `view` can leave out the bodies of a Python file's functions."""
    check_syntax: bool = False
    """Whether the policy is told when an edit leaves a Python file that does not parse; needs
    `python3` in the image."""

    @property
    def spec(self) -> ToolSpec:
        return editor_spec("file_editor", self.commands, concise=self.concise)


async def edit(
    arguments: Mapping[str, object],
    sandbox: Sandbox,
    context: ToolContext,
    *,
    check_syntax: bool = False,
) -> Observation:
    """Carry out a command of an editor; what is wrong with it is the observation.

    `line` beside `old_str` names the line in which the match begins, so that others may exist.
    """
    try:
        text = await _Call(arguments, sandbox, context, check_syntax=check_syntax).run()
    except ToolError as error:
        text = f"error: {error}"
    except (ConnectionError, TimeoutError):
        raise
    except OSError as error:
        # An error of the file system: a missing permission, a file where a folder should be.
        text = f"error: {error.strerror or type(error).__name__}"
    shown = cut_middle(text, context.output_bytes)
    return Observation(shown, truncated=shown != text)


class _Call:
    """One call on one path."""

    def __init__(
        self,
        arguments: Mapping[str, object],
        sandbox: Sandbox,
        context: ToolContext,
        *,
        check_syntax: bool,
    ) -> None:
        self._arguments = arguments
        self._sandbox = sandbox
        self._context = context
        self._check_syntax = check_syntax

    async def run(self) -> str:
        path = self._required("path")
        if not path or "\0" in path:
            raise ToolError("the path is empty or holds a NUL character")
        if path.count("/") > _MAX_FOLDERS:
            raise ToolError(f"the path has over {_MAX_FOLDERS} folders")
        info = await look(self._sandbox, path, timeout_s=self._context.timeout_s)
        match self._required("command"):
            case Command.VIEW:
                return await self._view(info)
            case Command.CREATE:
                done = await self._create(info)
            case Command.STR_REPLACE:
                done = await self._str_replace(info)
            case Command.INSERT:
                done = await self._insert(info)
            case Command.UNDO_EDIT:
                return await self._undo(info)
            case command:
                raise InternalError(f"the command {command} passed the schema")
        return done + await self._syntax_problem(info)

    async def _syntax_problem(self, info: PathInfo) -> str:
        if not self._check_syntax or not info.path.endswith(".py"):
            return ""
        result = await self._sandbox.exec(
            ["python3", "-I", "-c", _PARSE, info.path], timeout_s=self._context.timeout_s
        )
        if result.exit_code != _DOES_NOT_PARSE or result.timed_out:
            return ""
        return f"\nwarning: the file does not parse: {readable(result.stdout)[:300].strip()}"

    async def _view(self, info: PathInfo) -> str:
        if info.kind is PathKind.DIRECTORY:
            names = await listing(self._sandbox, info.path, timeout_s=self._context.timeout_s)
            return "\n".join([f"{info.path}, two levels deep, hidden entries left out:", *names])
        lines = lines_of(await self._read(info))
        if self._arguments.get("concise") is True:
            if not info.path.endswith(".py") or self._arguments.get("view_range") is not None:
                raise ToolError("concise is for the whole of a Python file (.py)")
            return await off_loop(_skeleton, lines)
        first, last = self._range(len(lines))
        shown = await off_loop(numbered, lines, first, last)
        return shown if lines else f"{info.path} is empty"

    async def _create(self, info: PathInfo) -> str:
        data = self._required("file_text").encode()
        if info.kind is not PathKind.MISSING:
            raise ToolError(f"{info.path} exists; change it with str_replace or insert")
        await self._sandbox.write_file(info.path, data)
        # Folders on the way may be links; the file is known by its real path.
        made = await look(self._sandbox, info.path, timeout_s=self._context.timeout_s)
        self._history.push(made.path, Edit(0, b"", len(data), digest_of(data), is_new=True))
        return f"created {info.path}"

    async def _str_replace(self, info: PathInfo) -> str:
        old, new = self._required("old_str").encode(), (self._optional("new_str") or "").encode()
        data = await self._read(info)
        line = self._arguments.get("line")
        if isinstance(line, int):
            at = match_in_line(data, old, info.path, line)
        else:
            at = only_match(data, old, info.path)
        if old == new:
            raise ToolError("old_str and new_str are the same: nothing would change")
        edited = await self._edit(info, data, at, old, new)
        return await off_loop(_edited, info, edited, at=at, size=len(new))

    async def _insert(self, info: PathInfo) -> str:
        text, data = self._required("new_str").encode(), await self._read(info)
        lines = lines_of(data)
        line = self._arguments.get("insert_line")
        if not isinstance(line, int) or not 0 <= line <= len(lines):
            raise ToolError(f"insert_line must be an integer from 0 to {len(lines)}")
        at = sum(map(len, lines[:line]))
        end = b"\r\n" if b"\r\n" in data else b"\n"
        if at == len(data) and data and not data.endswith(b"\n"):
            # The last line has no end yet; without one the new text would join it.
            new, skip = end + text, len(end)
        else:
            new, skip = (text if text.endswith(b"\n") else text + end), 0
        edited = await self._edit(info, data, at, b"", new)
        return await off_loop(_edited, info, edited, at=at + skip, size=len(new) - skip)

    async def _undo(self, info: PathInfo) -> str:
        edit = self._history.last(info.path)
        before = edit.undone(await self._read(info), info.path)
        if edit.is_new:
            await remove(self._sandbox, info.path, timeout_s=self._context.timeout_s)
            self._history.pop(info.path)
            return f"undone: {info.path} is removed, as before it was created"
        await self._sandbox.write_file(info.path, before, mode=info.mode)
        self._history.pop(info.path)
        return await off_loop(
            _edited, info, before, at=edit.at, size=len(edit.old), verb="undone in"
        )

    async def _edit(self, info: PathInfo, data: bytes, at: int, old: bytes, new: bytes) -> bytes:
        edit, edited = Edit.of(data, at, old, new)
        await self._sandbox.write_file(info.path, edited, mode=info.mode)
        self._history.push(info.path, edit)
        return edited

    @property
    def _history(self) -> UndoHistory:
        return self._context.state.of(UndoHistory)

    async def _read(self, info: PathInfo) -> bytes:
        match info.kind:
            case PathKind.MISSING:
                raise ToolError(f"{info.path} does not exist")
            case PathKind.DIRECTORY:
                raise ToolError(f"{info.path} is a directory")
            case PathKind.OTHER:
                raise ToolError(f"{info.path} is not a regular file, or did not answer")
            case PathKind.FILE if info.size_bytes > MAX_FILE_BYTES:
                raise ToolError(
                    f"{info.path} has {info.size_bytes} bytes, over {MAX_FILE_BYTES}; use bash"
                )
            case PathKind.FILE:
                data = await self._sandbox.read_file(info.path)
        count = data.count(b"\n")
        if count > _MAX_LINES:
            raise ToolError(f"{info.path} has {count} lines, over {_MAX_LINES}; use bash")
        if b"\0" in data[:_TEXT_PROBE_BYTES]:
            raise ToolError(f"{info.path} is a binary file of {len(data)} bytes")
        return data

    def _range(self, count: int) -> tuple[int, int]:
        wanted = self._arguments.get("view_range")
        if wanted is None:
            return 1, count
        match wanted:
            case [int(first), int(last)] if 1 <= first <= count and (last == -1 or last >= first):
                return first, count if last == -1 else min(last, count)
            case _:
                raise ToolError(
                    f"view_range must be [first, last]: first from 1 to {count}, last from first "
                    "on, or -1"
                )

    def _required(self, name: str) -> str:
        value = self._optional(name)
        if value is None:
            raise ToolError(f"the command {self._arguments.get('command')} needs {name}")
        return value

    def _optional(self, name: str) -> str | None:
        return text_argument(self._arguments, name)


def _edited(info: PathInfo, data: bytes, *, at: int, size: int, verb: str = "edited") -> str:
    lines = lines_of(data)
    first = max(1, line_of(data, at) - _SNIPPET_LINES)
    last = min(len(lines), line_of(data, at + max(0, size - 1)) + _SNIPPET_LINES)
    return f"{verb} {info.path}; lines {first} to {last} now:\n" + numbered(lines, first, last)


def _skeleton(lines: list[bytes]) -> str:
    parts: list[str] = []
    shown = 0
    for body in bodies([readable(line) for line in lines]):
        parts.append(numbered(lines, shown + 1, body.first - 1))
        parts.append(f"      \t[... lines {body.first} to {body.last} left out ...]")
        shown = body.last
    return "\n".join(filter(None, [*parts, numbered(lines, shown + 1, len(lines))]))
