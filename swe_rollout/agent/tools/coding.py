"""The tools of VERL's coding agents by their names and parameters: what they do is ours."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from swe_rollout.agent.tools.base import (
    Parameter,
    ParameterType,
    Tool,
    ToolContext,
    ToolError,
    Toolset,
    ToolSpec,
    cut_middle,
    text_argument,
)
from swe_rollout.agent.tools.bash import COMMAND, run_script
from swe_rollout.agent.tools.editor import edit
from swe_rollout.agent.tools.grep import Place, Text
from swe_rollout.agent.tools.search import SKIPS, search_names, search_text
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.types.turn import Observation

if TYPE_CHECKING:
    Carry = Callable[[Mapping[str, object], Sandbox, ToolContext], Awaitable[Observation]]

_MOST: Final = 100
_AROUND: Final = 2
_FILE: Final = Parameter("file_path", "The file, such as src/module.py.", required=True)
_FOLDER: Final = Parameter("working_dir", "The folder in which it starts; default: the repository.")


@dataclass(frozen=True, slots=True)
class CodingTool(Tool):
    """A schema, and how a call is carried out."""

    own: ToolSpec
    carry_out: Carry

    @property
    def spec(self) -> ToolSpec:
        return self.own

    async def run(
        self, arguments: Mapping[str, object], sandbox: Sandbox, context: ToolContext
    ) -> Observation:
        try:
            return await self.carry_out(arguments, sandbox, context)
        except ToolError as error:
            return Observation(cut_middle(f"error: {error}", context.output_bytes))


async def _view(
    arguments: Mapping[str, object], sandbox: Sandbox, context: ToolContext
) -> Observation:
    first, last = arguments.get("start_line"), arguments.get("end_line")
    given = first is not None or last is not None
    lines: dict[str, object] = (
        {"view_range": [1 if first is None else first, -1 if last is None else last]}
        if given
        else {}
    )
    return await edit(
        {"command": "view", "path": arguments["file_path"], **lines}, sandbox, context
    )


async def _edit(
    arguments: Mapping[str, object], sandbox: Sandbox, context: ToolContext
) -> Observation:
    path, new = arguments["file_path"], arguments.get("new_content", "")
    line = arguments.get("line_number")
    if (old := arguments.get("old_content")) is not None:
        call = {"command": "str_replace", "path": path, "old_str": old, "new_str": new}
        return await edit(call if line is None else {**call, "line": line}, sandbox, context)
    if line is None:
        raise ToolError("give old_content, which is replaced, or line_number, to insert after")
    return await edit(
        {"command": "insert", "path": path, "insert_line": line, "new_str": new}, sandbox, context
    )


async def _create(
    arguments: Mapping[str, object], sandbox: Sandbox, context: ToolContext
) -> Observation:
    call = {
        "command": "create",
        "path": arguments["file_path"],
        "file_text": arguments["content"],
    }
    return await edit(call, sandbox, context)


async def _search_code(
    arguments: Mapping[str, object], sandbox: Sandbox, context: ToolContext
) -> Observation:
    names = text_argument(arguments, "file_pattern")
    ignore_case = arguments.get("case_sensitive") is not True
    return await search_text(
        Text(text_argument(arguments, "query") or "", ignore_case=ignore_case),
        Place(".", (names,) if names else ()),
        sandbox,
        context,
        most=_MOST,
        around=_AROUND,
    )


async def _search_files(
    arguments: Mapping[str, object], sandbox: Sandbox, context: ToolContext
) -> Observation:
    return await search_names(
        Text(text_argument(arguments, "pattern") or ""),
        Place(text_argument(arguments, "directory") or "."),
        sandbox,
        context,
        most=_MOST,
    )


async def _bash(
    arguments: Mapping[str, object], sandbox: Sandbox, context: ToolContext
) -> Observation:
    return await run_script(
        text_argument(arguments, "command") or "",
        sandbox,
        context,
        folder=text_argument(arguments, "working_dir"),
    )


async def _run_tests(
    arguments: Mapping[str, object], sandbox: Sandbox, context: ToolContext
) -> Observation:
    script = text_argument(arguments, "test_command") or ""
    file = text_argument(arguments, "test_file")
    return await run_script(
        f"{script} {shlex.quote(file)}" if file else script,
        sandbox,
        context,
        folder=text_argument(arguments, "working_dir"),
    )


VIEW_FILE: Final = CodingTool(
    ToolSpec(
        "view_file",
        "View a file with line numbers, or a directory two levels deep.",
        (
            _FILE,
            Parameter("start_line", "The first line, from 1.", ParameterType.INTEGER),
            Parameter("end_line", "The last line; -1: to the end.", ParameterType.INTEGER),
        ),
    ),
    _view,
)
EDIT_FILE: Final = CodingTool(
    ToolSpec(
        "edit_file",
        "Edit a file: replace old_content, which must occur exactly once or begin in line_number, "
        "by new_content; without old_content, insert new_content after line_number.",
        (
            _FILE,
            Parameter("old_content", "The text to replace; whitespace and line ends count."),
            Parameter("new_content", "The new text; none to delete."),
            Parameter("line_number", "A line, from 1; 0: the top.", ParameterType.INTEGER),
        ),
    ),
    _edit,
)
CREATE_FILE: Final = CodingTool(
    ToolSpec(
        "create_file",
        "Create a file; fails if the path exists.",
        (_FILE, Parameter("content", "The whole content.", required=True)),
    ),
    _create,
)
SEARCH_CODE: Final = CodingTool(
    ToolSpec(
        "search_code",
        f"Search the files of the repository for a text. All matching lines are counted, the first "
        f"{_MOST} shown. {SKIPS}",
        (
            Parameter("query", "The text.", required=True),
            Parameter("file_pattern", "Only files whose name is like this, such as *.py."),
            Parameter(
                "case_sensitive", "Whether case matters; default false.", ParameterType.BOOLEAN
            ),
        ),
    ),
    _search_code,
)
SEARCH_FILES: Final = CodingTool(
    ToolSpec(
        "search_files",
        "Find files whose name has the pattern, or is like it where it has wildcards.",
        (
            Parameter("pattern", "Such as test_*.py or src/**/conf*.", required=True),
            Parameter("directory", "The folder to search; default: the repository."),
        ),
    ),
    _search_files,
)
EXECUTE_BASH: Final = CodingTool(
    ToolSpec(
        "execute_bash",
        "Run a bash script in the sandbox and read its output and exit code. Every call is a new "
        "shell. There is no terminal and no input.",
        (COMMAND, _FOLDER),
    ),
    _bash,
)
RUN_TESTS: Final = CodingTool(
    ToolSpec(
        "run_tests",
        "Run tests and read their output and exit code.",
        (
            Parameter("test_command", "The command, such as pytest -q.", required=True),
            Parameter("test_file", "A file of tests, put behind the command."),
            _FOLDER,
        ),
    ),
    _run_tests,
)
CODING: Final = Toolset(
    (
        "view_file",
        "edit_file",
        "create_file",
        "search_code",
        "search_files",
        "execute_bash",
        "run_tests",
    )
)
