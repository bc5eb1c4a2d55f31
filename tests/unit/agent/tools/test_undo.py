"""Edits that can be taken back: exactly, or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_rollout.agent.tools.base import ToolError
from swe_rollout.agent.tools.editor import MAX_EDITS, Edit, UndoHistory


@given(st.binary(max_size=40), st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9),
       st.binary(max_size=9)), max_size=8))  # fmt: skip
def test_edits_are_undone_in_reverse(first: bytes, edits: list[tuple[int, int, bytes]]) -> None:
    history, states = UndoHistory(), [first]
    for wanted, size, new in edits:
        data = states[-1]
        at = min(wanted, len(data))
        edit, after = Edit.of(data, at, data[at : at + size], new)
        history.push("f", edit)
        states.append(after)

    for after, before in zip(reversed(states), reversed(states[:-1]), strict=False):
        assert history.last("f").undone(after, "f") == before
        history.pop("f")
    with pytest.raises(ToolError, match="no edit of f"):
        history.last("f")


@given(st.binary(max_size=20), st.binary(max_size=20))
def test_a_file_that_is_another_is_left_alone(data: bytes, other: bytes) -> None:
    edit, after = Edit.of(data, 0, b"", b"x")

    if other == after:
        assert edit.undone(other, "f") == data
    else:
        with pytest.raises(ToolError, match="has changed since"):
            edit.undone(other, "f")


def test_old_edits_are_forgotten_by_file() -> None:
    history = UndoHistory()
    for number in range(MAX_EDITS + 5):
        history.push("a", Edit.of(b"", 0, b"", str(number).encode())[0])
    history.push("b", Edit.of(b"", 0, b"", b"")[0])

    for _ in range(MAX_EDITS):
        history.pop("a")
    with pytest.raises(ToolError):
        history.last("a")
    assert history.last("b")
