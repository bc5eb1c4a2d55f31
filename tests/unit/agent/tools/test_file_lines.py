"""Lines and matches of a file, against the plainest way to find them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_rollout.agent.tools.base import ToolError
from swe_rollout.agent.tools.lines import (
    MATCHES_TOLD,
    line_of,
    lines_of,
    match_in_line,
    only_match,
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
        assert only_match(data, old, "f") == found[0]
        return
    with pytest.raises(ToolError) as raised:
        only_match(data, old, "f")
    if found:
        assert str(line_of(data, found[0])) in str(raised.value)
        assert "more than once" in str(raised.value)
    else:
        assert "does not occur" in str(raised.value)


@given(DATA, OLD, st.integers(-1, 9))
def test_a_match_in_a_line_begins_there(data: bytes, old: bytes, line: int) -> None:
    found = [at for at in places(data, old) if line_of(data, at) == line]
    if len(found) == 1 and line >= 1:
        assert match_in_line(data, old, "f", line) == found[0]
    else:
        with pytest.raises(ToolError):
            match_in_line(data, old, "f", line)


def test_many_matches_are_told_in_part() -> None:
    with pytest.raises(ToolError) as raised:
        only_match(b"x\n" * 1000, b"x", "f")
    assert f", {MATCHES_TOLD} and more; add context" in str(raised.value)
    with pytest.raises(ToolError, match="more than once in line 1 of f"):
        only_match(b"xx", b"x", "f")
