"""One call of every built-in tool, one line each, for the contract of tools in a sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from swe_rollout.spec.agent import ToolUse

_SOURCE: Final = {"a.py": b"x = 1\n", "d/b.py": b"y = 2\nx = 1\n"}
_SESSION: Final = ToolUse.model_validate({"use": "bash", "with": {"session": True}})


@dataclass(frozen=True, slots=True)
class ToolCase:
    """A successful call."""

    use: str | ToolUse
    """The tool as a job names it, or a toolset."""
    arguments: Mapping[str, object]
    says: str = ""
    """Part of the observation."""
    files: Mapping[str, bytes] = field(default_factory=lambda: _SOURCE)
    """The files in the folder before the call."""
    leaves: Mapping[str, bytes] = field(default_factory=dict)
    """The files that the call changed or created."""
    commands: tuple[str, ...] = ()
    """Names of arguments that are commands, whose effects are not the tool's."""
    tool: str = ""
    """The name of the called tool of a toolset."""

    def __str__(self) -> str:
        use = self.use if isinstance(self.use, str) else f"{self.use.use}-with"
        return f"{use}.{self.tool}" if self.tool else use


_CAT: Final = "cat a.py"
_NEW: Final = {"new/n.py": b"n\n"}
_EDITED: Final = {"a.py": b"x = 2\n"}
_EDIT: Final = {"command": "str_replace", "path": "a.py", "old_str": "1", "new_str": "2"}
_TEXT: Final = {"command": "search_text", "pattern": "x = 1", "path": "."}

_NOTEBOOK: Final = {
    "n.ipynb": b'{"cells": [{"cell_type": "markdown", "metadata": {}, "source": "old"}], '
    b'"metadata": {}, "nbformat": 4, "nbformat_minor": 4}'
}
CASES: Final = (
    ToolCase("bash", {"command": _CAT}, "stdout:\nx = 1", commands=("command",)),
    ToolCase(_SESSION, {"command": _CAT}, "stdout:\nx = 1", commands=("command",)),
    ToolCase("bash_executor", {"command": _CAT}, "x = 1", commands=("command",)),
    ToolCase("str_replace_editor", _EDIT, "x = 2", leaves=_EDITED),
    ToolCase("file_editor", _EDIT, "x = 2", leaves=_EDITED),
    ToolCase("search", _TEXT, "2 matching lines in 2 files\na.py\n     1:x = 1"),
    ToolCase("calculator", {"expression": "2**64 + 1"}, "18446744073709551617"),
    ToolCase("think", {"thought": "first look, then edit"}),
    ToolCase("agent", {"prompt": "Look around."}, "worked on Look around."),
    ToolCase("architect", {"prompt": "How?"}, "thought about You are asked"),
    ToolCase("submit", {}, "handed in"),
    ToolCase("finish", {"answer": "done", "status": "success"}, "handed in"),
    ToolCase("view_file", {"file_path": "a.py"}, "     1\tx = 1"),
    ToolCase(
        "edit_file",
        {"file_path": "a.py", "old_content": "1", "new_content": "2"},
        "edited",
        leaves=_EDITED,
    ),
    ToolCase("create_file", {"file_path": "new/n.py", "content": "n\n"}, "created", leaves=_NEW),
    ToolCase("search_code", {"query": "x = 1", "file_pattern": "b*"}, "d/b.py\n     1-y"),
    ToolCase("search_files", {"pattern": "*.py"}, "2 files\na.py\nd/b.py"),
    ToolCase("execute_bash", {"command": _CAT}, "x = 1", commands=("command",)),
    ToolCase(
        "run_tests",
        {"test_command": "cat", "test_file": "a.py"},
        "x = 1",
        commands=("test_command",),
    ),
    ToolCase("r2e_bash_executor", {"cmd": _CAT}, "[STDOUT]\nx = 1", commands=("cmd", "command")),
    ToolCase("r2e_search", {"search_term": "x = 1"}, "2 matching lines in 2 files\na.py (1)"),
    ToolCase("r2e_finish", {"command": "submit"}, "<<<Finished>>>"),
    ToolCase("r2e", {"command": _CAT}, "x = 1", commands=("cmd", "command"), tool="execute_bash"),
    ToolCase("r2e_edit", _EDIT, "x = 2", leaves=_EDITED, tool="str_replace_editor"),
    ToolCase("coding", {"file_path": "a.py"}, "     1\tx = 1", tool="view_file"),
    ToolCase("Bash", {"command": _CAT}, "x = 1", commands=("command",)),
    ToolCase("Read", {"file_path": "a.py"}, "     1\tx = 1"),
    ToolCase("claude_code", {"file_path": "a.py"}, "     1\tx = 1", tool="Read"),
    ToolCase("Write", {"file_path": "new/n.py", "content": "n\n"}, "created", leaves=_NEW),
    ToolCase("Edit", {"file_path": "a.py", "old_string": "1", "new_string": "2"}, leaves=_EDITED),
    ToolCase(
        "MultiEdit",
        {"file_path": "a.py", "edits": [{"old_string": "1", "new_string": "2"}]},
        leaves=_EDITED,
    ),
    ToolCase("Glob", {"pattern": "**/*.py"}, "a.py\nd/b.py"),
    ToolCase("Grep", {"pattern": "x = \\d", "output_mode": "content"}, "a.py:1:x = 1"),
    ToolCase("LS", {"path": "."}, "  d/\n    b.py"),
    ToolCase("NotebookRead", {"notebook_path": "n.ipynb"}, "old", files=_NOTEBOOK),
    ToolCase(
        "NotebookEdit",
        {"notebook_path": "n.ipynb", "cell_number": 0, "new_source": "new"},
        "replaced cell 0",
        files=_NOTEBOOK,
        leaves={"n.ipynb": _NOTEBOOK["n.ipynb"].replace(b"old", b"new")},
    ),
    ToolCase("TodoWrite", {"todos": [{"content": "look", "status": "pending"}]}, "[ ] look"),
    ToolCase("TodoRead", {}),
    ToolCase("MemoryRead", {}),
    ToolCase("MemoryWrite", {"file_path": "index.md", "content": "x"}, "kept index.md"),
    ToolCase("Think", {"thought": "x"}),
)
