"""Edits of a notebook's text: one cell changes, and every other byte stays."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_rollout.agent.tools.base import ToolError
from swe_rollout.agent.tools.notebook import Notebook
from unit.agent.tools.notebooks import SOURCES, check_valid, code, markdown, notebook, notebooks


def joined(value: object) -> str:
    return value if isinstance(value, str) else "".join(value)  # type: ignore[arg-type]


@given(notebooks(), st.data(), SOURCES, st.sampled_from([None, "code", "markdown"]))
def test_replacing_changes_one_cell_alone(
    data: bytes, draw: st.DataObject, source: str, kind: str | None
) -> None:
    before = Notebook.read(data)
    if not before.cells:
        return
    number = draw.draw(st.integers(0, len(before.cells) - 1))

    text = before.replaced(number, source, kind)
    after = check_valid(text.encode())["cells"]
    cell = before.cells[number]
    assert text.startswith(before.text[: cell.start])
    assert text.endswith(before.text[cell.end :])
    assert joined(after[number]["source"]) == source
    assert after[number]["cell_type"] == (kind or cell.kind)
    assert after[number].get("id") == cell.id
    assert type(after[number]["source"]) is type(cell.value["source"])
    kept = [key for key in cell.value if key in after[number]]
    assert list(after[number])[: len(kept)] == kept


@given(notebooks(), st.data(), SOURCES, st.sampled_from(["code", "markdown"]))
def test_inserting_adds_one_cell_and_deleting_takes_it_away(
    data: bytes, draw: st.DataObject, source: str, kind: str
) -> None:
    before = Notebook.read(data)
    number = draw.draw(st.integers(0, len(before.cells)))

    text = before.inserted(number, source, kind)
    after = check_valid(text.encode())["cells"]
    assert joined(after[number]["source"]) == source
    assert after[number]["cell_type"] == kind
    assert [*after[:number], *after[number + 1 :]] == [cell.value for cell in before.cells]
    again = Notebook.read(text.encode()).deleted(number)
    assert json.loads(again.removeprefix("\ufeff")) == json.loads(text_of(data))
    if before.cells and number < len(before.cells):
        assert again == before.text


@given(notebooks(), st.data())
def test_deleting_leaves_the_other_cells_byte_for_byte(data: bytes, draw: st.DataObject) -> None:
    before = Notebook.read(data)
    if not before.cells:
        return
    number = draw.draw(st.integers(0, len(before.cells) - 1))

    after = Notebook.read(before.deleted(number).encode())
    check_valid(after.text.encode())
    written = [before.text[cell.start : cell.end] for cell in before.cells]
    del written[number]
    assert [after.text[cell.start : cell.end] for cell in after.cells] == written


def text_of(data: bytes) -> str:
    return data.decode("utf-8-sig")


@pytest.mark.parametrize("indent", [1, 2, "\t"])
def test_a_new_cell_is_written_as_the_others_are(indent: int | str) -> None:
    value = notebook(code("a = 1\nb = 2", "one"), markdown("# é", "two"))
    text = json.dumps(value, indent=indent, ensure_ascii=False) + "\n"

    after = Notebook.read(text.encode()).inserted(1, "x\ny", "code")
    assert after == json.dumps(json.loads(after), indent=indent, ensure_ascii=False) + "\n"
    again = Notebook.read(text.encode()).replaced(0, "x", None)
    assert again == json.dumps(json.loads(again), indent=indent, ensure_ascii=False) + "\n"


def test_the_first_cell_of_an_empty_notebook_is_indented_too() -> None:
    text = json.dumps(notebook(), indent=1, ensure_ascii=False)

    after = Notebook.read(text.encode()).inserted(0, "x", "markdown")
    assert after == json.dumps(json.loads(after), indent=1, ensure_ascii=False)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "missing"),
        (b"[]", "missing"),
        (b"{}", "format 4"),
        (b'{"nbformat": 3, "cells": []}', "format 4"),
        (b'{"nbformat": 4}', "format 4"),
        (b'{"nbformat": 4, "cells": {}}', "missing"),
        (b'{"nbformat": 4, "cells": [1]}', "objects"),
        (b'{"nbformat": 4, "cells": [{},]}', "comma"),
        (b'{"nbformat": 4, "cells": [{} {}]}', "missing"),
        (b'{"nbformat": 4, "cells": [], "cells": []}', "twice"),
        (b'{"nbformat": 4, "cells": []} x', "behind its end"),
        (b'{"nbformat": 4, "cells": []', "missing"),
        (b'{"nbformat": 4, "cells": [\xff]}', "UTF-8"),
        (b'{"nbformat": 4, "metadata": ' + b"[" * 200_000, "nested"),
        (b'{"nbformat": 4, "x": ' + b"1" * 5000 + b"}", "not JSON"),
        (b'{"nbformat": 4, "cells": [' + b"{}," * 6000 + b"{}]}", "5000"),
        (b'{"nbformat": 4, 1: 2}', "key"),
    ],
    ids=range(17),
)
def test_what_is_no_notebook_is_refused_with_its_reason(data: bytes, why: str) -> None:
    with pytest.raises(ToolError, match=why):
        Notebook.read(data)


@given(st.binary(max_size=60) | notebooks().map(lambda data: data[: len(data) // 2]))
def test_any_file_is_a_notebook_or_refused(data: bytes) -> None:
    with suppress(ToolError):
        assert Notebook.read(data).text == data.decode()
