"""Durations and rates in fixed memory."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_rollout.types.durations import DurationHistogram, RateMeter, RecentDurations

SECONDS = st.floats(min_value=0.001, max_value=90_000)


@given(values=st.lists(SECONDS, min_size=1, max_size=200), share=st.floats(0.01, 1))
def test_a_quantile_is_within_four_percent(values: list[float], share: float) -> None:
    histogram = DurationHistogram()
    for value in values:
        histogram.add(value)

    exact = sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
    assert histogram.quantile(share) == pytest.approx(exact, rel=0.041)
    assert histogram.total_s == pytest.approx(sum(values))


@given(values=st.lists(st.floats() | st.integers(-10, 10**400).map(lambda n: float(min(n, 1e300)))))
def test_nothing_that_is_added_breaks_it(values: list[float]) -> None:
    histogram = DurationHistogram()
    for value in values:
        histogram.add(value)

    assert histogram.count == len(values)
    assert 0 <= histogram.total_s <= 1e5 * len(values)
    assert sum(histogram.histogram((1, 60))) == len(values)
    assert (histogram.quantile(1.0) is None) == (not values)


@given(left=st.lists(SECONDS), right=st.lists(SECONDS))
def test_merged_histograms_are_the_histogram_of_all(left: list[float], right: list[float]) -> None:
    one, other, both = DurationHistogram(), DurationHistogram(), DurationHistogram()
    for value in left:
        one.add(value)
        both.add(value)
    for value in right:
        other.add(value)
        both.add(value)
    one.merge(other)

    assert one.count == both.count
    assert [one.quantile(n / 10) for n in range(1, 11)] == [
        both.quantile(n / 10) for n in range(1, 11)
    ]


def test_recent_durations_forget_old_ones_but_not_their_sum() -> None:
    durations = RecentDurations()
    for _ in range(5000):
        durations.add(1.0)
    for _ in range(5000):
        durations.add(100.0)

    recent = durations.recent()
    assert 2000 <= recent.count <= 4000
    assert recent.quantile(0.01) == pytest.approx(100, rel=0.05)
    assert durations.total_s == pytest.approx(505_000)


def test_a_rate_is_that_of_the_window() -> None:
    meter = RateMeter(1000.0, window_s=60.0)
    for second in range(60):
        meter.add(1000.0 + second, 3.0)
    assert meter.per_s(1060.0) == pytest.approx(3.0, rel=0.05)

    assert meter.per_s(1200.0) == 0.0
    meter.add(1200.0, 59.0)
    assert meter.per_s(1200.0) == pytest.approx(1.0, rel=0.05)


def test_the_first_second_makes_no_huge_rate() -> None:
    meter = RateMeter(0.0)
    meter.add(0.0, 5.0)
    assert meter.per_s(0.0) == 5.0
