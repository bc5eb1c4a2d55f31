"""What the policy reads about an editor, which depends on what it may do with it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from typing import Final

from swe_rollout.agent.tools.base import Parameter, ParameterType, ToolSpec


class Command(StrEnum):
    """What an editor can be told to do."""

    VIEW = "view"
    CREATE = "create"
    STR_REPLACE = "str_replace"
    INSERT = "insert"
    UNDO_EDIT = "undo_edit"


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


@cache
def editor_spec(name: str, commands: tuple[Command, ...], *, concise: bool) -> ToolSpec:
    """Return the schema of an editor with these commands; `concise`: it can show skeletons."""
    edits = len(commands) > 1 or Command.VIEW not in commands
    first = "View, create and edit files." if edits else "View files."
    uses: tuple[tuple[bool, Parameter], ...] = (
        (Command.CREATE in commands, Parameter("file_text", "create: the whole content.")),
        (
            Command.STR_REPLACE in commands,
            Parameter(
                "old_str", "str_replace: the text to replace, with enough context to be unique."
            ),
        ),
        (
            bool({Command.STR_REPLACE, Command.INSERT} & set(commands)),
            Parameter(
                "new_str", "str_replace: the new text, none to delete; insert: the new lines."
            ),
        ),
        (
            Command.INSERT in commands,
            Parameter(
                "insert_line", "insert: the line after which to insert.", ParameterType.INTEGER
            ),
        ),
        (
            Command.VIEW in commands,
            Parameter(
                "view_range",
                "view: [first, last] line, from 1; last -1: to the end.",
                ParameterType.INTEGERS,
            ),
        ),
        (
            concise and Command.VIEW in commands,
            Parameter(
                "concise",
                "view: true leaves out the bodies of a Python file's longer functions.",
                ParameterType.BOOLEAN,
            ),
        ),
    )
    return ToolSpec(
        name,
        "\n".join([first, *(_LINES[command] for command in commands)]),
        (
            Parameter("command", "What to do.", required=True, choices=tuple(map(str, commands))),
            Parameter("path", "The file or directory, such as src/module.py.", required=True),
            *(parameter for used, parameter in uses if used),
        ),
    )
