"""The `Edit` and `MultiEdit` tools: replace exact text; every other byte stays as it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from swe_rollout.agent.off_loop import off_loop
from swe_rollout.agent.tools.arguments import Arguments
from swe_rollout.agent.tools.base import Parameter, ParameterType, ToolError, ToolSpec
from swe_rollout.agent.tools.claude_code.allowed import AllowedFolders
from swe_rollout.agent.tools.claude_code.call import Call, ClaudeCodeTool, SchemaSpec
from swe_rollout.agent.tools.claude_code.files import MAX_FILE_BYTES, find, need_file, read, write
from swe_rollout.agent.tools.claude_code.text import encoded, line_at, snippet
from swe_rollout.agent.tools.paths import PathInfo, PathKind
from swe_rollout.errors import InternalError

MAX_EDITS = 100
_CRLF_NOTE = (
    "In a file whose lines all end in \\r\\n, \\n in old_string and new_string stands for \\r\\n."
)
_OLD = "The text to replace, with whitespace as in the file and enough context to be unique."
_NEW = "The text to put there; empty to delete."
_ALL = "Replace every occurrence, not exactly one."


@dataclass(frozen=True, slots=True)
class Replacement:
    """One replacement of exact text."""

    old: str
    new: str
    everywhere: bool = False


@dataclass(frozen=True, slots=True)
class Edited:
    """A file's new content, and the span that the last replacement wrote first."""

    data: bytes
    at: int
    size: int
    count: int
    """Occurrences replaced, by all replacements together."""


class Edit(ClaudeCodeTool):
    """Replaces text that occurs exactly once, or everywhere; creates a file from an empty one."""

    def __init__(self, name: str = "Edit", *, folders: Sequence[str] = ()) -> None:
        """Offer the tool under `name`; `folders`: where it may write, all of the sandbox if empty.

        Raises TypeError when these are no paths.
        """
        self._allowed = AllowedFolders.of(folders)
        super().__init__(
            ToolSpec(
                name,
                "Replace old_string, which must occur exactly once in the file, by new_string. "
                f"An empty old_string creates the file. {_CRLF_NOTE}",
                (
                    Parameter("file_path", "The file, such as src/module.py.", required=True),
                    Parameter("old_string", _OLD, required=True),
                    Parameter("new_string", _NEW, required=True),
                    Parameter("replace_all", _ALL, ParameterType.BOOLEAN),
                ),
            )
        )

    async def call(self, call: Call) -> str:
        edit = Replacement(
            call.required("old_string"), call.required("new_string"), call.flag("replace_all")
        )
        return await _apply(call, self._allowed, [edit])


class MultiEdit(ClaudeCodeTool):
    """Makes several replacements in one file, in order; all of them or none."""

    def __init__(self, name: str = "MultiEdit", *, folders: Sequence[str] = ()) -> None:
        """Offer the tool under `name`; `folders`: where it may write, all of the sandbox if empty.

        Raises TypeError when these are no paths.
        """
        self._allowed = AllowedFolders.of(folders)
        properties = {
            "old_string": {"type": "string", "description": _OLD},
            "new_string": {"type": "string", "description": _NEW},
            "replace_all": {"type": "boolean", "description": _ALL},
        }
        edits = {
            "type": "array",
            "description": f"The replacements, 1 to {MAX_EDITS}; each sees what those before did.",
            "minItems": 1,
            "maxItems": MAX_EDITS,
            "items": {
                "type": "object",
                "properties": properties,
                "required": ["old_string", "new_string"],
                "additionalProperties": False,
            },
        }
        path = {"type": "string", "description": "The file, such as src/module.py."}
        super().__init__(
            SchemaSpec(
                name,
                "Make several replacements in one file, one after the other, as Edit makes one. "
                f"If one of them fails, nothing is changed. {_CRLF_NOTE}",
                schema=Arguments.of(
                    {
                        "type": "object",
                        "properties": {"file_path": path, "edits": edits},
                        "required": ["file_path", "edits"],
                    }
                ),
            )
        )

    async def call(self, call: Call) -> str:
        return await _apply(call, self._allowed, _replacements(call.arguments.get("edits")))


def replaced(data: bytes, edits: Sequence[Replacement], name: str) -> Edited:
    """Make replacements in order; ToolError for the first that can't be made, which it names.

    Nothing is written: `data` is what they start from, `name` how messages call the file.
    """
    done = Edited(data, 0, 0, 0)
    for number, edit in enumerate(edits, 1):
        try:
            done = _replaced(done, edit, name)
        except ToolError as error:
            where = f"edit {number} of {len(edits)}: " if len(edits) > 1 else ""
            raise ToolError(f"{where}{error}") from error
    return done


async def _apply(call: Call, allowed: AllowedFolders, edits: Sequence[Replacement]) -> str:
    info = await find(call, "file_path")
    if info.path.endswith(".ipynb"):
        raise ToolError(f"{info.path} is a notebook; change it with NotebookEdit")
    await allowed.check(call, info.path)
    if not edits[0].old:
        return await _create(call, info, edits)
    data = await read(call, info)
    if b"\0" in data[:8192]:
        raise ToolError(f"{info.path} is a binary file of {len(data)} bytes")
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
    done = await off_loop(replaced, first, edits[1:], info.path) if edits[1:] else None
    data = first if done is None else done.data
    await write(call, info, data)
    return f"created {info.path}, {len(data)} bytes"


def _replaced(before: Edited, edit: Replacement, name: str) -> Edited:
    data = before.data
    old = _with_line_ends(data, encoded(edit.old, "old_string"))
    new = _with_line_ends(data, encoded(edit.new, "new_string"))
    if not old:
        raise ToolError("old_string is empty")
    if old == new:
        raise ToolError("old_string and new_string are the same: nothing would change")
    at = data.find(old)
    if at < 0:
        raise ToolError(f"old_string does not occur in {name}{_hint(data, old)}")
    count = 1
    if edit.everywhere:
        count = data.count(old)
    elif (again := data.find(old, at + 1)) >= 0:
        raise ToolError(
            f"old_string occurs more than once in {name}, such as at lines {line_at(data, at)} "
            f"and {line_at(data, again)}; add context to make it unique, or set replace_all"
        )
    size = len(data) + count * (len(new) - len(old))
    # Checked before it is made: four million replacements by a long text fill any memory.
    if size > MAX_FILE_BYTES:
        raise ToolError(f"the file would have {size} bytes, over {MAX_FILE_BYTES}")
    return Edited(data.replace(old, new, count), at, len(new), before.count + count)


def _with_line_ends(data: bytes, text: bytes) -> bytes:
    r"""Return a text with `\r\n` where all lines of the file end so and the text has no `\r`."""
    if b"\n" not in text or b"\r" in text:
        return text
    crlf = data.count(b"\r\n")
    return text.replace(b"\n", b"\r\n") if crlf and crlf == data.count(b"\n") else text


def _hint(data: bytes, old: bytes) -> str:
    """Say what may be wrong with a text that does not occur."""
    longest = max((line.strip() for line in old.split(b"\n")), key=len)
    at = data.find(longest) if longest else -1
    if at < 0:
        return ""
    return f"; line {line_at(data, at)} holds one of its lines: compare whitespace and line ends"


def _replacements(edits: object) -> list[Replacement]:
    if not isinstance(edits, list):
        raise InternalError("edits passed the schema without being an array")
    return [
        Replacement(each["old_string"], each["new_string"], each.get("replace_all") is True)
        for each in edits
    ]
