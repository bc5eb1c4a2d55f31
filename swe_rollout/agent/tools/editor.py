"""The one editor: view files and change them, byte for byte.

Only the span named by a call changes: line ends, tabs, encodings and file modes are preserved.
Policies call it through `editor_faces` and `claude_files`.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from swe_rollout.agent.off_loop import off_loop
from swe_rollout.agent.tools import files
from swe_rollout.agent.tools.base import ToolError, readable
from swe_rollout.agent.tools.face import Call
from swe_rollout.agent.tools.files import PathInfo, PathKind
from swe_rollout.agent.tools.lines import Wanted, encoded, lines_of, numbered, snippet
from swe_rollout.agent.tools.skeleton import bodies

MAX_EDITS: Final = 100
"""Maximum edits of one file that can be undone; older ones are dropped."""
_DOES_NOT_PARSE: Final = 9
_PARSE: Final = f"""
import sys
try:
    compile(open(sys.argv[1], "rb").read(), sys.argv[1], "exec", dont_inherit=True)
except (SyntaxError, ValueError) as error:
    print("line", getattr(error, "lineno", None), "-", getattr(error, "msg", error))
    sys.exit({_DOES_NOT_PARSE})
"""


@dataclass(frozen=True, slots=True)
class Edit:
    """One edit of a file: the replaced text, its offset, and a digest of the file after it.

    It contains no more text than the call that made it.
    """

    at: int
    old: bytes
    new_size: int
    digest: bytes
    """Digest of the whole file after the edit."""
    is_new: bool = False
    """Whether the edit created the file."""

    @classmethod
    def of(cls, data: bytes, at: int, old: bytes, new: bytes) -> tuple[Edit, bytes]:
        """Replace `old` at `at` with `new`; return the edit and the file after it."""
        after = data[:at] + new + data[at + len(old) :]
        return cls(at, old, len(new), _digest(after)), after

    def undone(self, data: bytes, path: str) -> bytes:
        """Return the file before the edit. Raises ToolError if it has changed since the edit."""
        if _digest(data) != self.digest:
            raise ToolError(
                f"{path} has changed since its last edit, by a command perhaps; undoing the edit "
                "could lose that change, so nothing was done"
            )
        return data[: self.at] + self.old + data[self.at + self.new_size :]


@dataclass(slots=True)
class UndoHistory:
    """Edits by the real path of their file, in order; one history for each episode."""

    _edits: dict[str, deque[Edit]] = field(default_factory=dict)

    def push(self, path: str, edit: Edit) -> None:
        """Add an edit."""
        self._edits.setdefault(path, deque(maxlen=MAX_EDITS)).append(edit)

    def last(self, path: str) -> Edit:
        """Return the last edit of a file. Raises ToolError if there is none."""
        if not (edits := self._edits.get(path)):
            raise ToolError(f"there is no edit of {path} to undo")
        return edits[-1]

    def pop(self, path: str) -> None:
        """Drop the last edit of a file, which was undone."""
        self._edits[path].pop()


def _digest(data: bytes) -> bytes:
    """Return a digest that identifies a file's content."""
    return hashlib.blake2b(data, digest_size=16).digest()


async def view(call: Call, info: PathInfo, wanted: object = None, *, concise: bool = False) -> str:
    """Show a file with line numbers, or a directory two levels deep.

    `wanted` is the policy's [first, last] line; `concise` omits the bodies of longer functions of
    a Python file.
    """
    if info.kind is PathKind.DIRECTORY:
        names = await files.listing(call, info.path)
        return "\n".join([f"{info.path}, two levels deep, hidden entries left out:", *names])
    lines = lines_of(await _read(call, info))
    if concise:
        if not info.path.endswith(".py") or wanted is not None:
            raise ToolError("concise is for the whole of a Python file (.py)")
        return await off_loop(_skeleton, lines)
    first, last = _range(wanted, len(lines))
    return await off_loop(_shown, lines, first, last) if lines else f"{info.path} is empty"


async def create(call: Call, info: PathInfo, text: str) -> str:
    """Create a file. Raises ToolError if its path exists."""
    data = encoded(text, "the text")
    if info.kind is not PathKind.MISSING:
        raise ToolError(f"{info.path} exists; change it with str_replace or insert")
    await call.sandbox.write_file(info.path, data)
    # Folders on the way may be links; the file is identified by its real path.
    made = await files.look(call, info.path)
    _history(call).push(made.path, Edit(0, b"", len(data), _digest(data), is_new=True))
    return f"created {info.path}"


async def replace(call: Call, info: PathInfo, old: str, new: str, *, line: int | None) -> str:
    """Replace text that occurs exactly once, or that starts in `line`, counted from 1."""
    before, after = encoded(old, "old_str"), encoded(new, "new_str")
    if not before:
        raise ToolError("old_str is empty; use insert to add text")
    data = await _read(call, info)
    at = Wanted(before, "old_str").place_in(data, info.path, line)
    if before == after:
        raise ToolError("old_str and new_str are the same: nothing would change")
    edited = await _put(call, info, *Edit.of(data, at, before, after))
    return await off_loop(_edited, info, edited, at=at, size=len(after))


async def insert(call: Call, info: PathInfo, line: object, text: str) -> str:
    """Insert lines after a line, or at the top for 0."""
    given, data = encoded(text, "new_str"), await _read(call, info)
    lines = lines_of(data)
    if not isinstance(line, int) or not 0 <= line <= len(lines):
        raise ToolError(f"insert_line must be an integer from 0 to {len(lines)}")
    at = sum(map(len, lines[:line]))
    end = b"\r\n" if b"\r\n" in data else b"\n"
    if at == len(data) and data and not data.endswith(b"\n"):
        # The last line has no line end; without one the new text would join it.
        new, skip = end + given, len(end)
    else:
        new, skip = (given if given.endswith(b"\n") else given + end), 0
    edited = await _put(call, info, *Edit.of(data, at, b"", new))
    return await off_loop(_edited, info, edited, at=at + skip, size=len(new) - skip)


async def undo(call: Call, info: PathInfo) -> str:
    """Undo the last edit of a file, unless something else has changed it since."""
    edit = _history(call).last(info.path)
    before = edit.undone(await _read(call, info), info.path)
    if edit.is_new:
        await files.remove(call, info.path)
        _history(call).pop(info.path)
        return f"undone: {info.path} is removed, as before it was created"
    await call.sandbox.write_file(info.path, before, mode=info.mode)
    _history(call).pop(info.path)
    return await off_loop(_edited, info, before, at=edit.at, size=len(edit.old), verb="undone in")


async def syntax_problem(call: Call, info: PathInfo) -> str:
    """Return a warning about a Python file that does not parse, or an empty string."""
    if not info.path.endswith(".py"):
        return ""
    command = ["python3", "-I", "-c", _PARSE, info.path]
    result = await call.sandbox.exec(command, timeout_s=call.remaining_s)
    if result.exit_code != _DOES_NOT_PARSE or result.timed_out:
        return ""
    return f"\nwarning: the file does not parse: {readable(result.stdout)[:300].strip()}"


async def _read(call: Call, info: PathInfo) -> bytes:
    data = await files.read(call, info, advice="; use bash", suggest=False)
    files.need_text(info, data)
    return data


async def _put(call: Call, info: PathInfo, edit: Edit, edited: bytes) -> bytes:
    await call.sandbox.write_file(info.path, edited, mode=info.mode)
    _history(call).push(info.path, edit)
    return edited


def _history(call: Call) -> UndoHistory:
    return call.context.state.of(UndoHistory)


def _range(wanted: object, count: int) -> tuple[int, int]:
    match wanted:
        case None:
            return 1, count
        case [int(first), int(last)] if 1 <= first <= count and (last == -1 or last >= first):
            return first, count if last == -1 else min(last, count)
        case _:
            raise ToolError(
                f"view_range must be [first, last]: first from 1 to {count}, last from first "
                "on, or -1"
            )


def _shown(lines: Sequence[bytes], first: int, last: int) -> str:
    return "\n".join(numbered(lines[first - 1 : last], first, whole=True))


def _edited(info: PathInfo, data: bytes, *, at: int, size: int, verb: str = "edited") -> str:
    shown = snippet(data, at, size, most=files.MAX_LINES, whole=True)
    return f"{verb} {info.path}; {shown}"


def _skeleton(lines: list[bytes]) -> str:
    parts: list[str] = []
    shown = 0
    for body in bodies([readable(line) for line in lines]):
        parts.append(_shown(lines, shown + 1, body.first - 1))
        parts.append(f"      \t[... lines {body.first} to {body.last} left out ...]")
        shown = body.last
    return "\n".join(filter(None, [*parts, _shown(lines, shown + 1, len(lines))]))
