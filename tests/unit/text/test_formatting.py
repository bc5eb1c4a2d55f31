"""Numbers and durations for terminals."""

from __future__ import annotations

import pytest

from swe_rollout.text.formatting import (
    format_duration,
    format_masked,
    format_mean,
    format_share,
    format_size,
    sparkline,
)


def test_the_smallest_count_differs_from_none() -> None:
    assert sparkline([0, 1, 1000]) == "▁▂█"
    assert sparkline([0, 0]) == "▁▁"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((None, "–"), (float("nan"), "–"), (float("inf"), "–"), (-1, "0 s"), (0, "0 s")),
        *((0.0004, "0 s"), (0.045, "45 ms"), (0.9996, "1 s"), (3.24, "3.2 s"), (41, "41 s")),
        *((59.6, "1 min"), (401, "6 min 41 s"), (7601, "2 h 6 min"), (86_399.9, "1 d")),
        (273_600, "3 d 4 h"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds: float | None, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (12 << 20, "12 MiB"), (1 << 44, "16384 GiB")],
)
def test_a_size_has_the_largest_unit_that_fits(count: int, text: str) -> None:
    assert format_size(count) == text


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
