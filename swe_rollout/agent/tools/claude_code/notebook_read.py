"""The `NotebookRead` tool: the cells of a notebook with their outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from swe_rollout.agent.off_loop import off_loop
from swe_rollout.agent.tools.base import Parameter, ParameterType, ToolError, ToolSpec, cut_middle
from swe_rollout.agent.tools.claude_code.call import Call, ClaudeCodeTool
from swe_rollout.agent.tools.claude_code.files import find, read
from swe_rollout.agent.tools.claude_code.notebook import Cell, Notebook, joined
from swe_rollout.agent.tools.paths import PathInfo

_MAX_OUTPUT_BYTES = 8000
"""Of the outputs of one cell."""
_NOTE_BYTES = 160


class NotebookRead(ClaudeCodeTool):
    """Shows the cells of a notebook."""

    def __init__(self, name: str = "NotebookRead") -> None:
        """Offer the tool under `name`."""
        super().__init__(
            ToolSpec(
                name,
                "Read a Jupyter notebook: the number, id, type, source and outputs of its cells. "
                "Cells that do not fit are named; cell_number goes on there.",
                (
                    Parameter("notebook_path", "The .ipynb file.", required=True),
                    Parameter("cell_id", "Show this cell alone."),
                    Parameter(
                        "cell_number", "The first cell to show, from 0.", ParameterType.INTEGER
                    ),
                ),
            )
        )

    async def call(self, call: Call) -> str:
        info = await find(call, "notebook_path")
        notebook = await load(call, info)
        first = call.integer("cell_number") or 0
        chosen: Sequence[int] = range(first, len(notebook.cells))
        if (cell_id := call.text("cell_id")) is not None:
            chosen = [notebook.number_of(cell_id)]
        if not notebook.cells:
            return f"{info.path} has no cells"
        if not chosen:
            raise ToolError(f"the last cell of {info.path} is {len(notebook.cells) - 1}")
        return await off_loop(_shown, notebook, chosen, call.context.output_bytes)


async def load(call: Call, info: PathInfo) -> Notebook:
    """Read a notebook; ToolError says why a file is none."""
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
