"""Numbers and durations for terminals."""

from __future__ import annotations

import pytest

from swe_rollout.text.formatting import (
    format_clock,
    format_masked,
    format_mean,
    format_share,
    sparkline,
)


def test_the_smallest_count_differs_from_none() -> None:
    assert sparkline([0, 1, 1000]) == "▁▂█"
    assert sparkline([0, 0]) == "▁▁"


@pytest.mark.parametrize(("seconds", "text"), [(0, "00:00"), (401, "06:41"), (7601, "2:06:41")])
def test_clock(seconds: float, text: str) -> None:
    assert format_clock(seconds) == text


@pytest.mark.threat(point=8)
def test_a_mean_is_shown_with_the_share_that_is_not_in_it() -> None:
    assert format_mean(1.0, masked=24, committed=48) == "1.00 (50% masked)"
    assert format_mean(None, masked=3, committed=3) == "– (100% masked)"
    assert format_mean(0.5, masked=0, committed=48) == "0.50"
    assert format_masked(2, 8) == "2 (25%)"
    assert format_masked(0, 8) == "0"


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [(0, 0, "0%"), (1, 1000, "<1%"), (999, 1000, ">99%"), (1, 8, "12%"), (8, 8, "100%")],
)
def test_a_share_is_nothing_or_all_only_where_it_is(part: int, whole: int, text: str) -> None:
    assert format_share(part, whole) == text
