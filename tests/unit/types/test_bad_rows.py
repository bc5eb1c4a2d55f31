"""Lines of a quarantine file: written as they are read, and nothing else is read."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_rollout.types.bad_rows import MAX_LINE_BYTES, BadRow, Finding, GoldTimes
from swe_rollout.types.verdict import TestStatus

ROW = BadRow(
    "a__b-1",
    "0123456789ab",
    (Finding("base", "the tests pass", {"t.py::t": TestStatus.PASSED}, "1 passed"),),
    ("t.py::x",),
    GoldTimes(1.0, 2.0, 3.0),
    "0.1",
)
_texts = st.text(max_size=20)


@given(
    st.builds(
        BadRow,
        _texts,
        _texts,
        st.lists(
            st.builds(
                Finding,
                _texts,
                _texts,
                st.dictionaries(_texts, st.sampled_from(TestStatus), max_size=3),
                _texts,
            ),
            max_size=3,
        ).map(tuple),
        st.lists(_texts, max_size=3).map(tuple),
    )
)
def test_a_line_is_read_as_it_was_written_and_has_no_control_character(row: BadRow) -> None:
    line = row.to_line()
    assert BadRow.of_line(line) == row
    assert line.count(b"\n") == 1
    assert not any(byte < 32 for byte in line[:-1])


def test_the_reason_names_each_check_once() -> None:
    twice = BadRow("x", "d", (Finding("gold", "a"), Finding("gold", "b"), Finding("base", "c")))
    assert twice.reason == "gold, base"
    assert BadRow("x", "d", ()).reason == "unnamed"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema": 2}, "expected schema 1, found 2"),
        ({"digest": 1}, "digest"),
        ({"findings": "no"}, "findings"),
        ({"findings": [{"check": "gold"}]}, "message"),
    ],
)
def test_another_line_is_refused_with_what_is_wrong(change: dict[str, object], words: str) -> None:
    line = json.dumps(json.loads(ROW.to_line()) | change).encode()
    with pytest.raises(ValueError, match=words):
        BadRow.of_line(line)


@pytest.mark.parametrize(
    "line",
    [b"{", b"[]", b"1", b"\xff", b'{"schema": 1}', b"[" * 100_000, b" " * (MAX_LINE_BYTES + 1)],
)
def test_what_is_no_line_is_a_value_error(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"quarantine file|longer than"):
        BadRow.of_line(line)
