"""Differences between two jobs, and how sure they are."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_rollout.export.paired import Certainty, paired

VALUES = st.lists(st.floats(-100, 100), max_size=60)


@pytest.mark.parametrize(
    ("higher", "lower", "p"),
    [(5, 0, 0.0625), (6, 0, 0.03125), (1, 1, 1.0), (8, 2, 0.109375), (0, 0, None)],
)
def test_the_sign_test_is_exact(higher: int, lower: int, p: float | None) -> None:
    changes = [1.0] * higher + [-1.0] * lower + [0.0] * 3
    assert paired([0.0] * len(changes), changes).p == p


def test_the_sign_test_of_many_tasks_is_that_of_the_normal_distribution() -> None:
    changes = [1.0] * 1100 + [-1.0] * 1000
    exact = sum(math.comb(2100, k) for k in range(1001)) / 2**2099
    assert paired([0.0] * 2100, changes).p == pytest.approx(exact, rel=0.02)


@pytest.mark.parametrize(
    ("changes", "certainty"),
    [
        ([], Certainty.SAME),
        ([0.0] * 100, Certainty.SAME),
        ([1e-15] * 100, Certainty.SAME),
        ([1.0] * 5, Certainty.TOO_FEW),
        ([1.0] * 5 + [0.0] * 90, Certainty.TOO_FEW),
        ([1.0] * 6, Certainty.SIGNIFICANT),
        ([1.0] * 6 + [-1.0] * 3, Certainty.NOT_SIGNIFICANT),
        ([1.0, -1.0] * 20, Certainty.NOT_SIGNIFICANT),
        ([0.5, 0.0, 1.0, 0.5] * 10, Certainty.SIGNIFICANT),
        ([0.5, 0.0, 1.0, 0.5] * 5000, Certainty.SIGNIFICANT),
        ([-0.1, 0.1] * 10_000, Certainty.NOT_SIGNIFICANT),
    ],
)
def test_chance_is_not_called_a_difference(changes: list[float], certainty: Certainty) -> None:
    assert paired([0.0] * len(changes), changes).certainty is certainty


@given(before=VALUES, after=VALUES)
def test_the_interval_is_around_the_mean_and_the_result_is_always_the_same(
    before: list[float], after: list[float]
) -> None:
    count = min(len(before), len(after))
    found = paired(before[:count], after[:count])

    assert found == paired(before[:count], after[:count])
    assert found.pairs == count
    assert found.higher + found.lower <= count
    assert (found.interval is None) == (count < 10)
    if found.interval is not None and found.mean is not None:
        low, high = found.interval
        assert low - 1e-9 <= found.mean <= high + 1e-9


@given(before=VALUES, after=VALUES)
def test_the_other_way_round_it_is_the_opposite(before: list[float], after: list[float]) -> None:
    count = min(len(before), len(after))
    one, other = paired(before[:count], after[:count]), paired(after[:count], before[:count])

    assert (one.higher, one.lower, one.p) == (other.lower, other.higher, other.p)
    assert one.mean is None or one.mean == pytest.approx(-(other.mean or 0.0))


def test_values_that_are_no_numbers_are_left_out() -> None:
    found = paired([0.0, math.nan, 1.0], [1.0, 1.0, math.inf])
    assert (found.pairs, found.mean) == (1, 1.0)
