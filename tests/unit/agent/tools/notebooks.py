"""Notebooks for tests, and what makes one valid."""

from __future__ import annotations

import json
import re

from hypothesis import strategies as st

CELL_KEYS = {
    "code": {"cell_type", "metadata", "source", "outputs", "execution_count"},
    "markdown": {"cell_type", "metadata", "source"},
    "raw": {"cell_type", "metadata", "source"},
}


def code(source: str, cell_id: str = "c0", **more: object) -> dict[str, object]:
    cell: dict[str, object] = {
        "cell_type": "code",
        "execution_count": 3,
        "id": cell_id,
        "metadata": {"scrolled": True},
        "outputs": [{"name": "stdout", "output_type": "stream", "text": ["out\n", "put\n"]}],
        "source": source.splitlines(keepends=True),
    }
    return cell | more


def markdown(source: str, cell_id: str = "m0") -> dict[str, object]:
    return {"cell_type": "markdown", "id": cell_id, "metadata": {}, "source": source}


def notebook(*cells: dict[str, object], minor: int = 5) -> dict[str, object]:
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {
        "cells": list(cells),
        "metadata": {"kernelspec": kernel, "odd": [1.50, 1e3, "ü\u2028"]},
        "nbformat": 4,
        "nbformat_minor": minor,
    }


def check_valid(data: bytes) -> dict[str, list[dict[str, object]]]:
    """Assert what the notebook format demands, and return the notebook."""
    parsed = json.loads(data.decode("utf-8-sig"))
    assert parsed["nbformat"] == 4
    ids = []
    for cell in parsed["cells"]:
        keys = set(cell)
        if parsed["nbformat_minor"] >= 5:
            assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", cell["id"])
            ids.append(cell["id"])
            keys -= {"id"}
        assert keys == CELL_KEYS[cell["cell_type"]]
        lines = cell["source"]
        assert isinstance(lines, str) or all(isinstance(line, str) for line in lines)
    assert len(set(ids)) == len(ids)
    return parsed  # type: ignore[no-any-return]


SOURCES = st.text(st.sampled_from('ab\n\\"\t é\u2028🙂{}[],:'), max_size=12)


@st.composite
def notebooks(draw: st.DrawFn) -> bytes:
    """A valid notebook, written in one of many styles."""
    has_ids = draw(st.booleans())
    cells = []
    for number in range(draw(st.integers(0, 4))):
        source = draw(SOURCES)
        cell = draw(st.sampled_from([code, markdown]))(source, f"id-{number}")
        if not has_ids:
            del cell["id"]
        cells.append(dict(draw(st.permutations(list(cell.items())))))
    value = notebook(*cells, minor=5 if has_ids else draw(st.integers(0, 4)))
    value = dict(draw(st.permutations(list(value.items()))))
    text = json.dumps(
        value,
        ensure_ascii=draw(st.booleans()),
        indent=draw(st.sampled_from([None, 1, 2, 4, "\t"])),
        separators=draw(st.sampled_from([None, (",", ":"), (" , ", " : ")])),
    )
    if draw(st.booleans()):
        text = text.replace("\n", "\r\n")
    return (
        draw(st.sampled_from(["", "\ufeff"])) + text + draw(st.sampled_from(["", "\n"]))
    ).encode()
