"""The `NotebookRead` and `NotebookEdit` tools: the cells of a notebook, with their outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pydantic import validate_call

from swe_rollout.agent.off_loop import off_loop
from swe_rollout.agent.tools.base import Parameter, ParameterType, ToolError, cut_middle
from swe_rollout.agent.tools.face import Call, Face, renamed
from swe_rollout.agent.tools.files import Folders, PathInfo, check_allowed, find, read, write
from swe_rollout.agent.tools.lines import encoded
from swe_rollout.agent.tools.notebook import Cell, Notebook, joined

_MAX_OUTPUT_BYTES: Final = 8000
"""Maximum bytes to show of one cell's outputs."""
_NOTE_BYTES: Final = 160
_PATH: Final = Parameter("notebook_path", "The .ipynb file.", required=True)


async def _read(call: Call) -> str:
    info = await find(call, "notebook_path")
    notebook = await _load(call, info)
    first = call.integer("cell_number") or 0
    chosen: Sequence[int] = range(first, len(notebook.cells))
    if (cell_id := call.text("cell_id")) is not None:
        chosen = [notebook.number_of(cell_id)]
    if not notebook.cells:
        return f"{info.path} has no cells"
    if not chosen:
        raise ToolError(f"the last cell of {info.path} is {len(notebook.cells) - 1}")
    return await off_loop(_shown, notebook, chosen, call.context.output_bytes)


NOTEBOOK_READ: Final = Face.of(
    _read,
    "NotebookRead",
    "Read a Jupyter notebook: the number, id, type, source and outputs of its cells. "
    "Cells that do not fit are named; cell_number goes on there.",
    _PATH,
    Parameter("cell_id", "Show this cell alone."),
    Parameter("cell_number", "The first cell to show, from 0.", ParameterType.INTEGER),
)
READ_NOTEBOOK: Final = NOTEBOOK_READ.named("ReadNotebook")


@validate_call
def notebook_edit(*, folders: Folders = ()) -> Face:
    """Offer `NotebookEdit`: change one cell and keep the others byte for byte."""

    async def act(call: Call) -> str:
        info = await find(call, "notebook_path")
        await check_allowed(call, folders, info.path)
        notebook = await _load(call, info)
        text, done = await off_loop(_edited, call, notebook)
        data = text.encode()
        # Never write a notebook that can't be read again.
        after = await off_loop(Notebook.read, data)
        await write(call, info, data)
        return f"{done} of {info.path}, cells now: {len(after.cells)}"

    return Face.of(
        act,
        "NotebookEdit",
        "Replace, insert or delete one cell of a Jupyter notebook. The cell is named by "
        "cell_id or by cell_number; a replaced cell loses its outputs.",
        _PATH,
        Parameter("new_source", "replace, insert: the whole source of the cell."),
        Parameter("cell_id", "The id of the cell; insert: the new cell comes after it."),
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
    )


notebook_edit_cell = renamed(notebook_edit, "NotebookEditCell")


async def _load(call: Call, info: PathInfo) -> Notebook:
    """Read a notebook. ToolError says why a file is not one."""
    if not info.path.endswith(".ipynb"):
        raise ToolError(f"{info.path} is not a notebook: its name does not end in .ipynb")
    data = await read(call, info)
    try:
        return await off_loop(Notebook.read, data)
    except ToolError as error:
        raise ToolError(f"{info.path} can't be read as a notebook: {error}") from error


def _shown(notebook: Notebook, chosen: Sequence[int], limit: int) -> str:
    parts: list[str] = []
    room = limit - _NOTE_BYTES
    for number in chosen:
        text = _cell(number, notebook.cells[number], notebook.language)
        room -= len(text.encode(errors="replace")) + 2
        if room < 0 and parts:
            last = number - 1
            of = f"cells {chosen[0]} to {last} of {len(notebook.cells)}"
            return "\n\n".join([*parts, f"[{of}; go on with cell_number {number}]"])
        parts.append(text)
    return "\n\n".join(parts)


def _cell(number: int, cell: Cell, language: str) -> str:
    kind = f"{cell.kind} ({language})" if cell.kind == "code" and language else cell.kind
    count = cell.value.get("execution_count")
    run = f", run [{count}]" if isinstance(count, int) else ""
    name = f"cell {number}, id {cell.id}" if cell.id is not None else f"cell {number}"
    outputs = "\n".join(_outputs(cell.value.get("outputs")))
    shown = cut_middle(outputs.encode(errors="replace").decode(), _MAX_OUTPUT_BYTES)
    text = f"{name}, {kind}{run}:\n{cell.source}"
    return f"{text}\noutput:\n{shown}" if shown else text


def _outputs(outputs: object) -> Iterator[str]:
    for output in outputs if isinstance(outputs, list) else []:
        match output:
            case {"output_type": "stream", "text": text}:
                yield joined(text).removesuffix("\n")
            case {"output_type": "error", "traceback": list(lines)} if lines:
                yield "\n".join(each for each in lines if isinstance(each, str))
            case {"output_type": "error", "ename": name, "evalue": value}:
                yield f"{name}: {value}"
            case {"data": dict(data)}:
                yield from _data(data)
            case _:
                continue


def _data(data: Mapping[str, object]) -> Iterator[str]:
    for kind, value in data.items():
        if kind == "text/plain":
            yield joined(value).removesuffix("\n")
        else:
            yield f"[{kind}, {len(joined(value))} characters, not shown]"


def _edited(call: Call, notebook: Notebook) -> tuple[str, str]:
    """Return the notebook's new text, and a description of the edit."""
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
