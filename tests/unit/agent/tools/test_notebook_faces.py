"""`NotebookRead` and `NotebookEdit`: cells are shown with outputs, and one of them changes."""

from __future__ import annotations

import json

import pytest

from swe_rollout.sandbox.base import Sandbox
from unit.agent.tools.conftest import files, folder_of, said, use
from unit.agent.tools.notebooks import check_valid, code, markdown, notebook

pytestmark = pytest.mark.asyncio(loop_scope="module")

VALUE = notebook(markdown("# one", "m0"), code("a\nb", "c1"), code("c", "c2"))
PATH = {"notebook_path": "n.ipynb"}


def prepare(sandbox: Sandbox, value: object = VALUE) -> None:
    files(sandbox, {"n.ipynb": json.dumps(value, indent=1, ensure_ascii=False).encode()})


def sources(sandbox: Sandbox) -> list[str]:
    cells = check_valid((folder_of(sandbox) / "n.ipynb").read_bytes())["cells"]
    return ["".join(cell["source"]) for cell in cells]  # type: ignore[arg-type]


@pytest.mark.parametrize("tool", ["NotebookEdit", "NotebookEditCell"])
@pytest.mark.parametrize("which", [{"cell_number": 1}, {"cell_id": "c1"}, {"cell_id": "cell-1"}])
async def test_a_cell_is_replaced_l18(
    sandbox: Sandbox, tool: str, which: dict[str, object]
) -> None:
    prepare(sandbox)

    seen = await said(sandbox, tool, **PATH, **which, new_source="x\n\\n")
    assert "replaced cell 1 of" in seen
    assert sources(sandbox) == ["# one", "x\n\\n", "c"]
    cell = check_valid((folder_of(sandbox) / "n.ipynb").read_bytes())["cells"][1]
    assert (cell["outputs"], cell["execution_count"]) == ([], None)
    assert cell["metadata"] == {"scrolled": True}


async def test_cells_are_inserted_and_deleted(sandbox: Sandbox) -> None:
    prepare(sandbox)
    insert = {**PATH, "edit_mode": "insert", "cell_type": "code"}

    await said(sandbox, "NotebookEdit", **insert, new_source="first")
    await said(sandbox, "NotebookEdit", **insert, new_source="after c1", cell_id="c1")
    await said(sandbox, "NotebookEdit", **insert, new_source="last", cell_number=5)
    assert sources(sandbox) == ["first", "# one", "a\nb", "after c1", "c", "last"]
    for number in (5, 3, 0):
        await said(sandbox, "NotebookEdit", **PATH, edit_mode="delete", cell_number=number)
    assert json.loads((folder_of(sandbox) / "n.ipynb").read_text()) == VALUE


async def test_a_type_is_changed_with_what_belongs_to_it(sandbox: Sandbox) -> None:
    prepare(sandbox)

    await said(sandbox, "NotebookEdit", **PATH, cell_number=1, cell_type="markdown", new_source="x")
    await said(sandbox, "NotebookEdit", **PATH, cell_number=0, cell_type="code", new_source="y")
    assert sources(sandbox) == ["y", "x", "c"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"new_source": "x"}, "name the cell"),
        ({"cell_number": 3, "new_source": "x"}, "there is no cell 3: the cells are 0 to 2"),
        ({"cell_number": -1, "new_source": "x"}, "cell_number must be"),
        ({"cell_id": "cell-9", "new_source": "x"}, "no cell 'cell-9'"),
        ({"cell_id": "c1", "cell_number": 1, "new_source": "x"}, "not both"),
        ({"cell_number": 1}, "new_source is missing"),
        ({"cell_number": 1, "new_source": "\ud800"}, "surrogate"),
        ({"edit_mode": "insert", "new_source": "x"}, "insert needs cell_type"),
        (
            {"edit_mode": "insert", "new_source": "x", "cell_type": "code", "cell_number": 4},
            "cell_number must be from 0 to 3",
        ),
        ({"edit_mode": "delete"}, "name the cell"),
    ],
)
async def test_an_edit_that_is_not_clear_is_a_failure_and_changes_nothing_wt11(
    sandbox: Sandbox, arguments: dict[str, object], why: str
) -> None:
    prepare(sandbox)
    before = (folder_of(sandbox) / "n.ipynb").read_bytes()

    seen = await said(sandbox, "NotebookEdit", **PATH, **arguments)
    assert seen.startswith("error: ")
    assert why in seen
    assert (folder_of(sandbox) / "n.ipynb").read_bytes() == before


async def test_a_large_cell_is_written_and_never_an_argument_of_a_command_wt7(
    sandbox: Sandbox,
) -> None:
    prepare(sandbox)

    await said(sandbox, "NotebookEdit", **PATH, cell_number=2, new_source="y = 1\n" * 50_000)
    assert sources(sandbox)[2] == "y = 1\n" * 50_000


async def test_half_a_surrogate_pair_in_another_cell_stays_an_escape(sandbox: Sandbox) -> None:
    value = notebook(markdown("\ud800"), markdown("b", "m1"))
    files(sandbox, {"n.ipynb": json.dumps(value).encode()})

    await said(sandbox, "NotebookEdit", **PATH, cell_number=1, new_source="é")
    assert b'"\\ud800"' in (folder_of(sandbox) / "n.ipynb").read_bytes()
    assert sources(sandbox) == ["\ud800", "é"]


def written(*cells: dict[str, object]) -> dict[str, bytes]:
    return {"n.ipynb": json.dumps(notebook(*cells)).encode()}


@pytest.mark.parametrize("tool", ["NotebookRead", "ReadNotebook"])
async def test_cells_are_shown_with_their_outputs_l17(sandbox: Sandbox, tool: str) -> None:
    outputs = [
        {"output_type": "stream", "name": "stdout", "text": ["1\n", "2\n"]},
        {
            "output_type": "display_data",
            "data": {"image/png": "aGk=", "text/plain": ["<Figure>"]},
            "metadata": {},
        },
        {"output_type": "error", "ename": "E", "evalue": "v", "traceback": ["Trace", "E: v"]},
        {"output_type": "error", "ename": "E", "evalue": "v", "traceback": []},
    ]
    files(sandbox, written(markdown("# Title"), code("x = 1\nx", "c1", outputs=outputs)))

    assert await said(sandbox, tool, notebook_path="n.ipynb") == (
        "cell 0, id m0, markdown:\n# Title\n\n"
        "cell 1, id c1, code (python), run [3]:\nx = 1\nx\noutput:\n"
        "1\n2\n[image/png, 4 characters, not shown]\n<Figure>\nTrace\nE: v\nE: v"
    )


async def test_one_cell_or_those_from_a_number_on(sandbox: Sandbox) -> None:
    files(sandbox, written(*(markdown(f"text {n}", f"id{n}") for n in range(3))))

    one = await said(sandbox, "NotebookRead", notebook_path="n.ipynb", cell_id="id1")
    assert one == "cell 1, id id1, markdown:\ntext 1"
    rest = await said(sandbox, "NotebookRead", notebook_path="n.ipynb", cell_number=2)
    assert rest == "cell 2, id id2, markdown:\ntext 2"
    gone = await said(sandbox, "NotebookRead", notebook_path="n.ipynb", cell_number=3)
    assert gone.endswith("n.ipynb is 2")
    assert "no cell 'x'" in await said(
        sandbox, "NotebookRead", notebook_path="n.ipynb", cell_id="x"
    )


async def test_outputs_and_pages_are_bounded_wt9(sandbox: Sandbox) -> None:
    loud = [{"output_type": "stream", "name": "stdout", "text": "x" * 10**6}]
    files(sandbox, written(code("loud", "loud", outputs=loud), *(code("y" * 400) for _ in "123")))

    whole = await use(sandbox, "NotebookRead", {"notebook_path": "n.ipynb"}, output_bytes=1 << 20)
    assert "bytes omitted" in whole.text
    assert 8000 < len(whole.text) < 10_000
    page = await use(sandbox, "NotebookRead", {"notebook_path": "n.ipynb"}, output_bytes=9000)
    assert page.text.endswith("[cells 0 to 1 of 4; go on with cell_number 2]")
    assert not page.truncated


async def test_what_is_no_notebook_is_a_failure(sandbox: Sandbox) -> None:
    files(sandbox, {"f.py": b"", "n.ipynb": b"{", "e.ipynb": written()["n.ipynb"]})

    for path, why in (
        ("f.py", "does not end in .ipynb"),
        ("n.ipynb", "can't be read as a notebook: it is not JSON"),
        ("gone.ipynb", "does not exist"),
    ):
        seen = await said(sandbox, "NotebookRead", notebook_path=path)
        assert seen.startswith("error: ")
        assert why in seen
    assert (await said(sandbox, "NotebookRead", notebook_path="e.ipynb")).endswith("has no cells")
