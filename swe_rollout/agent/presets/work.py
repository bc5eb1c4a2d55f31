"""What a call does for the work on code, told from its tool's name and its arguments.

Only guidance and counts depend on it: what a shell command does can't be known.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final

from swe_rollout.types.turn import ToolCall


class Work(Enum):
    """A kind of call."""

    VIEW = auto()
    SEARCH = auto()
    EDIT = auto()
    TEST = auto()
    COMMAND = auto()
    OTHER = auto()


_BY_NAME: Final = {
    **dict.fromkeys(("view_file", "k8s_file_read", "Read"), Work.VIEW),
    **dict.fromkeys(
        ("search", "search_code", "search_files", "k8s_search", "r2e_search", "Grep", "Glob"),
        Work.SEARCH,
    ),
    **dict.fromkeys(
        ("edit_file", "create_file", "k8s_file_edit", "Replace", "Edit", "Write"), Work.EDIT
    ),
    "run_tests": Work.TEST,
}
_EDITORS: Final = {
    "view": Work.VIEW,
    **dict.fromkeys(("create", "str_replace", "insert", "undo_edit"), Work.EDIT),
}
_TESTS: Final = re.compile(
    r"(?:^|[\s;&|/(])(?:pytest|py\.test|unittest|tox|nox|runtests\.py|ctest"
    r"|(?:bin|make|npm|go|cargo)[ /](?:run )?test)\b"
)
_EDITS: Final = re.compile(r"(?:^|[\s;&|(])(?:git apply|patch -|sed -i|git am)\b")


def work_of(call: ToolCall) -> Work:
    """Return what kind of work a call is."""
    if (named := _BY_NAME.get(call.name)) is not None:
        return named
    command = call.arguments.get("command", call.arguments.get("cmd"))
    if not isinstance(command, str):
        return Work.OTHER
    if "path" in call.arguments:
        return _EDITORS.get(command, Work.OTHER)
    if _EDITS.search(command):
        return Work.EDIT
    return Work.TEST if _TESTS.search(command) else Work.COMMAND
