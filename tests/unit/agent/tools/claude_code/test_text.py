"""How text is shown: pages, snippets and long lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_rollout.agent.tools.base import ToolError
from swe_rollout.agent.tools.lines import (
    encoded,
    lines_of,
    numbered,
    page,
    shown_line,
    snippet,
)


@given(st.lists(st.text(max_size=80)), st.integers(0, 2000))
def test_a_page_holds_whole_lines_and_counts_the_rest(lines: list[str], limit: int) -> None:
    shown = page(lines, limit)

    assert list(shown.lines) == lines[: len(shown.lines)]
    assert len(shown.lines) + shown.left == len(lines)
    assert len(shown.lines) <= 1 or len(shown.text.encode(errors="replace")) <= limit


@given(st.binary(max_size=60), st.data())
def test_a_snippet_is_the_lines_of_the_span_and_those_around(
    data: bytes, draw: st.DataObject
) -> None:
    data = data.replace(b"\x07", b"\n").replace(b"\x08", b"\n")
    at = draw.draw(st.integers(0, len(data)))
    size = draw.draw(st.integers(0, len(data) - at))
    if not data:
        assert snippet(data, at, size) == "it is empty now"
        return
    shown = snippet(data, at, size, around=1, most=1000)

    lines = lines_of(data)
    first = max(1, min(data.count(b"\n", 0, at) + 1 - 1, len(lines)))
    last = min(len(lines), data.count(b"\n", 0, at + max(0, size - 1)) + 1 + 1)
    head, *rest = shown.split("\n")
    assert head == f"lines {first} to {last} of {len(lines)} now:"
    assert "\n".join(rest) == "\n".join(numbered(lines[first - 1 : last], first))


def test_a_snippet_of_millions_of_lines_is_short() -> None:
    data = b"\n" * (4 << 20)

    assert snippet(data, 1 << 20, 1 << 20).startswith("lines 1048573 to 1048612 of 4194304 now:\n")
    assert len(snippet(data, 0, len(data)).split("\n")) == 41


@given(st.binary())
def test_lines_are_split_and_joined_again(data: bytes) -> None:
    assert b"".join(lines_of(data)) == data


def test_a_long_line_is_cut_between_characters() -> None:
    assert shown_line("é".encode() * 2000) == f"{'é' * 1000} [... line cut after 2000 bytes]"
    assert shown_line(b"a" + "é".encode() * 2000).endswith("é [... line cut after 1999 bytes]")


def test_half_a_surrogate_pair_is_refused_with_its_place() -> None:
    with pytest.raises(ToolError, match="name holds half a surrogate pair at character 1"):
        encoded("a\udc80", "name")
