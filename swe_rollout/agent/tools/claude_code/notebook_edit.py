"""The `NotebookEdit` tool: replace, insert or delete one cell of a notebook."""

from __future__ import annotations

from collections.abc import Sequence

from swe_rollout.agent.off_loop import off_loop
from swe_rollout.agent.tools.base import Parameter, ParameterType, ToolError, ToolSpec
from swe_rollout.agent.tools.claude_code.allowed import AllowedFolders
from swe_rollout.agent.tools.claude_code.call import Call, ClaudeCodeTool
from swe_rollout.agent.tools.claude_code.files import find, write
from swe_rollout.agent.tools.claude_code.notebook import Notebook
from swe_rollout.agent.tools.claude_code.notebook_read import load
from swe_rollout.agent.tools.claude_code.text import encoded


class NotebookEdit(ClaudeCodeTool):
    """Changes one cell; the other cells stay as they are, byte for byte."""

    def __init__(self, name: str = "NotebookEdit", *, folders: Sequence[str] = ()) -> None:
        """Offer the tool under `name`; `folders`: where it may write, all of the sandbox if empty.

        Raises TypeError when these are no paths.
        """
        self._allowed = AllowedFolders.of(folders)
        super().__init__(
            ToolSpec(
                name,
                "Replace, insert or delete one cell of a Jupyter notebook. The cell is named by "
                "cell_id or by cell_number; a replaced cell loses its outputs.",
                (
                    Parameter("notebook_path", "The .ipynb file.", required=True),
                    Parameter("new_source", "replace, insert: the whole source of the cell."),
                    Parameter(
                        "cell_id", "The id of the cell; insert: the new cell comes after it."
                    ),
                    Parameter(
                        "cell_number",
                        "The number of the cell, from 0; insert: the number that the new cell "
                        "gets, 0 if neither is given.",
                        ParameterType.INTEGER,
                    ),
                    Parameter(
                        "cell_type",
                        "insert: the type of the new cell; replace: another type.",
                        choices=("code", "markdown"),
                    ),
                    Parameter(
                        "edit_mode",
                        "What to do; replace if not given.",
                        choices=("replace", "insert", "delete"),
                    ),
                ),
            )
        )

    async def call(self, call: Call) -> str:
        info = await find(call, "notebook_path")
        await self._allowed.check(call, info.path)
        notebook = await load(call, info)
        text, done = await off_loop(_edited, call, notebook)
        data = text.encode()
        # What can't be read again is never written.
        after = await off_loop(Notebook.read, data)
        await write(call, info, data)
        return f"{done} of {info.path}, cells now: {len(after.cells)}"


def _edited(call: Call, notebook: Notebook) -> tuple[str, str]:
    """Return the notebook's new text, and what was done."""
    mode, kind = call.text("edit_mode") or "replace", call.text("cell_type")
    match mode:
        case "insert":
            if kind is None:
                raise ToolError("insert needs cell_type")
            at = _place(call, notebook)
            return notebook.inserted(at, _new_source(call), kind), f"inserted cell {at}"
        case "delete":
            number = _number(call, notebook)
            return notebook.deleted(number), f"deleted cell {number}"
        case _:
            number = _number(call, notebook)
            return notebook.replaced(number, _new_source(call), kind), f"replaced cell {number}"


def _new_source(call: Call) -> str:
    source = call.required("new_source")
    encoded(source, "new_source")
    return source


def _place(call: Call, notebook: Notebook) -> int:
    """Return the number that an inserted cell gets."""
    cell_id = call.text("cell_id")
    if cell_id is None:
        return call.integer("cell_number", most=len(notebook.cells)) or 0
    _only_one(call)
    return notebook.number_of(cell_id) + 1


def _number(call: Call, notebook: Notebook) -> int:
    """Return the number of the cell that the call names."""
    cell_id, number = call.text("cell_id"), call.integer("cell_number")
    if cell_id is not None:
        _only_one(call)
        return notebook.number_of(cell_id)
    if number is None:
        raise ToolError("name the cell by cell_id or cell_number")
    if number >= len(notebook.cells):
        raise ToolError(f"there is no cell {number}: the cells are 0 to {len(notebook.cells) - 1}")
    return number


def _only_one(call: Call) -> None:
    if call.integer("cell_number") is not None:
        raise ToolError("give cell_id or cell_number, not both")
