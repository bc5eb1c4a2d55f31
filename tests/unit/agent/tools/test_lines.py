"""Lines and matches of a file against the plainest way to find them, and how text is shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_rollout.agent.tools.base import ToolError
from swe_rollout.agent.tools.lines import (
    MATCHES_TOLD,
    Wanted,
    encoded,
    line_of,
    lines_of,
    numbered,
    page,
    shown_line,
    snippet,
)

DATA = st.text(alphabet="ab\n\r", max_size=30).map(str.encode)
OLD = st.text(alphabet="ab\n\r", min_size=1, max_size=3).map(str.encode)


def places(data: bytes, old: bytes) -> list[int]:
    return [at for at in range(len(data)) if data.startswith(old, at)]


@given(st.binary(max_size=60))
def test_lines_are_all_of_the_file(data: bytes) -> None:
    lines = lines_of(data)

    assert b"".join(lines) == data
    assert all(line.endswith(b"\n") for line in lines[:-1])
    assert all(b"\n" not in line[:-1] for line in lines)


@given(DATA, OLD)
def test_the_only_match_is_found_and_others_are_told(data: bytes, old: bytes) -> None:
    found = places(data, old)
    if len(found) == 1:
        assert Wanted(old, "old").place_in(data, "f") == found[0]
        return
    with pytest.raises(ToolError) as raised:
        Wanted(old, "old").place_in(data, "f")
    if found:
        assert str(line_of(data, found[0])) in str(raised.value)
        assert "more than once" in str(raised.value)
    else:
        assert "does not occur" in str(raised.value)


@given(DATA, OLD, st.integers(-1, 9))
def test_a_match_in_a_line_begins_there(data: bytes, old: bytes, line: int) -> None:
    found = [at for at in places(data, old) if line_of(data, at) == line]
    if len(found) == 1 and line >= 1:
        assert Wanted(old, "old").place_in(data, "f", line) == found[0]
    else:
        with pytest.raises(ToolError):
            Wanted(old, "old").place_in(data, "f", line)


def test_many_matches_are_told_in_part() -> None:
    with pytest.raises(ToolError) as raised:
        Wanted(b"x", "old").place_in(b"x\n" * 1000, "f")
    assert f", {MATCHES_TOLD} and more; add context" in str(raised.value)
    with pytest.raises(ToolError, match="more than once in line 1 of f"):
        Wanted(b"x", "old").place_in(b"xx", "f")


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


def test_a_long_line_is_cut_between_characters() -> None:
    assert shown_line("é".encode() * 2000) == f"{'é' * 1000} [... line cut after 2000 bytes]"
    assert shown_line(b"a" + "é".encode() * 2000).endswith("é [... line cut after 1999 bytes]")


def test_half_a_surrogate_pair_is_refused_with_its_place() -> None:
    with pytest.raises(ToolError, match="name holds half a surrogate pair at character 1"):
        encoded("a\udc80", "name")
