"""The faces of the editor: `str_replace_editor` and `file_editor`, and those of VERL's agents."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field, validate_call

from swe_rollout.agent.tools import editor, files
from swe_rollout.agent.tools.base import Parameter, ParameterType, ToolError
from swe_rollout.agent.tools.face import Call, Face, renamed
from swe_rollout.agent.tools.files import PathInfo
from swe_rollout.errors import InternalError


class Command(StrEnum):
    """The commands of an editor."""

    VIEW = "view"
    CREATE = "create"
    STR_REPLACE = "str_replace"
    INSERT = "insert"
    UNDO_EDIT = "undo_edit"


_WITHOUT_UNDO: Final = tuple(each for each in Command if each is not Command.UNDO_EDIT)
_LINES: Final[Mapping[Command, str]] = {
    Command.VIEW: "* view: a file with line numbers (all, or the lines of view_range), or a "
    "directory two levels deep.",
    Command.CREATE: "* create: a new file with file_text; fails if the path exists.",
    Command.STR_REPLACE: "* str_replace: replace old_str, which must occur exactly once, by "
    "new_str; whitespace and line ends count.",
    Command.INSERT: "* insert: put new_str after line insert_line (0: at the top).",
    Command.UNDO_EDIT: "* undo_edit: take back the last edit of the file, unless something else "
    "has changed it since.",
}
_USES: Final[tuple[tuple[frozenset[Command], Parameter], ...]] = (
    (frozenset({Command.CREATE}), Parameter("file_text", "create: the whole content.")),
    (
        frozenset({Command.STR_REPLACE}),
        Parameter("old_str", "str_replace: the text to replace, with enough context to be unique."),
    ),
    (
        frozenset({Command.STR_REPLACE, Command.INSERT}),
        Parameter("new_str", "str_replace: the new text, none to delete; insert: the new lines."),
    ),
    (
        frozenset({Command.INSERT}),
        Parameter("insert_line", "insert: the line after which to insert.", ParameterType.INTEGER),
    ),
    (
        frozenset({Command.VIEW}),
        Parameter(
            "view_range",
            "view: [first, last] line, from 1; last -1: to the end.",
            ParameterType.INTEGERS,
        ),
    ),
)
"""The parameters, each with the commands that use it."""
_CONCISE: Final = Parameter(
    "concise",
    "view: true leaves out the bodies of a Python file's longer functions.",
    ParameterType.BOOLEAN,
)


Commands = Annotated[
    tuple[Command, ...],
    Field(
        min_length=1,
        description="What the policy may tell it; `[view]` makes it read files alone.",
    ),
]
Concise = Annotated[
    bool,
    Field(description="Whether `view` can leave out the bodies of a Python file's functions."),
]
CheckSyntax = Annotated[
    bool,
    Field(
        description="Whether the policy is told when an edit leaves a Python file that does not "
        "parse; needs `python3` in the image."
    ),
]


@validate_call
def str_replace_editor(
    *,
    commands: Commands = _WITHOUT_UNDO,
    concise: Concise = False,
    check_syntax: CheckSyntax = False,
) -> Face:
    """Offer an editor. Errors are observations; a failed call changes nothing."""
    return _editor("str_replace_editor", commands, concise=concise, check_syntax=check_syntax)


@validate_call
def file_editor(
    *,
    commands: Commands = tuple(Command),
    concise: Concise = True,
    check_syntax: CheckSyntax = False,
) -> Face:
    """Offer an editor that also undoes edits and shows skeletons of Python files."""
    return _editor("file_editor", commands, concise=concise, check_syntax=check_syntax)


def _editor(name: str, commands: tuple[Command, ...], *, concise: bool, check_syntax: bool) -> Face:
    async def act(call: Call) -> str:
        path, command = _needed(call, "path"), _needed(call, "command")
        files.check_path(path, "the path")
        info = await files.look(call, path)
        done = await _commanded(call, info, command)
        if check_syntax and command not in {Command.VIEW, Command.UNDO_EDIT}:
            done += await editor.syntax_problem(call, info)
        return done

    edits = len(commands) > 1 or Command.VIEW not in commands
    first = "View, create and edit files." if edits else "View files."
    return Face.of(
        act,
        name,
        "\n".join([first, *(_LINES[command] for command in commands)]),
        Parameter("command", "What to do.", required=True, choices=tuple(map(str, commands))),
        Parameter("path", "The file or directory, such as src/module.py.", required=True),
        *(parameter for uses, parameter in _USES if uses & set(commands)),
        *([_CONCISE] if concise and Command.VIEW in commands else []),
    )


async def _commanded(call: Call, info: PathInfo, command: str) -> str:
    match command:
        case Command.VIEW:
            wanted = call.arguments.get("view_range")
            return await editor.view(call, info, wanted, concise=call.flag("concise"))
        case Command.CREATE:
            return await editor.create(call, info, _needed(call, "file_text"))
        case Command.STR_REPLACE:
            old, new = _needed(call, "old_str"), call.text("new_str") or ""
            return await editor.replace(call, info, old, new, line=None)
        case Command.INSERT:
            text = _needed(call, "new_str")
            return await editor.insert(call, info, call.arguments.get("insert_line"), text)
        case Command.UNDO_EDIT:
            return await editor.undo(call, info)
        case _:
            raise InternalError(f"the command {command} passed the schema")


def _needed(call: Call, name: str) -> str:
    if (value := call.text(name)) is None:
        raise ToolError(f"the command {call.arguments.get('command')} needs {name}")
    return value


async def _view_file(call: Call) -> str:
    first, last = call.arguments.get("start_line"), call.arguments.get("end_line")
    given = first is not None or last is not None
    wanted = [1 if first is None else first, -1 if last is None else last] if given else None
    return await editor.view(call, await files.find(call, "file_path"), wanted)


async def _edit_file(call: Call) -> str:
    old, new = call.text("old_content"), call.text("new_content") or ""
    line = call.arguments.get("line_number")
    if old is not None:
        at = line if isinstance(line, int) else None
        return await editor.replace(call, await files.find(call, "file_path"), old, new, line=at)
    if line is None:
        raise ToolError("give old_content, which is replaced, or line_number, to insert after")
    return await editor.insert(call, await files.find(call, "file_path"), line, new)


async def _create_file(call: Call) -> str:
    return await editor.create(call, await files.find(call, "file_path"), call.required("content"))


_PATH: Final = Parameter("file_path", "The file, such as src/module.py.", required=True)
VIEW_FILE: Final = Face.of(
    _view_file,
    "view_file",
    "View a file with line numbers, or a directory two levels deep.",
    _PATH,
    Parameter("start_line", "The first line, from 1.", ParameterType.INTEGER),
    Parameter("end_line", "The last line; -1: to the end.", ParameterType.INTEGER),
)
EDIT_FILE: Final = Face.of(
    _edit_file,
    "edit_file",
    "Edit a file: replace old_content, which must occur exactly once or begin in line_number, "
    "by new_content; without old_content, insert new_content after line_number.",
    _PATH,
    Parameter("old_content", "The text to replace; whitespace and line ends count."),
    Parameter("new_content", "The new text; none to delete."),
    Parameter("line_number", "A line, from 1; 0: the top.", ParameterType.INTEGER),
)
CREATE_FILE: Final = Face.of(
    _create_file,
    "create_file",
    "Create a file; fails if the path exists.",
    _PATH,
    Parameter("content", "The whole content.", required=True),
)
k8s_file_editor = renamed(file_editor, "k8s_file_editor")
r2e_file_editor = renamed(file_editor, "r2e_file_editor")
r2e_str_replace_editor = renamed(str_replace_editor, "r2e_str_replace_editor")
