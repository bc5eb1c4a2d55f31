"""Slopes: what grows is told from what only varies."""

from __future__ import annotations

import random

import pytest

from rollout_dev.soak.slopes import slope

EPISODES = list(range(200))


def noisy(seed: int, growth: float) -> list[float]:
    chance = random.Random(seed)
    return [20 + growth * each + chance.gauss(0, 2) for each in EPISODES]


def test_a_line_is_found_exactly() -> None:
    found = slope(EPISODES, [7 + 3 * each for each in EPISODES])
    assert found.value == pytest.approx(3)
    assert found.error == pytest.approx(0, abs=1e-9)
    assert found.is_above(2.9)
    assert not found.is_above(3.1)


@pytest.mark.parametrize("seed", range(20))
def test_growth_is_told_from_noise(seed: int) -> None:
    assert slope(EPISODES, noisy(seed, 1.0)).is_above(0.1)
    assert not slope(EPISODES, noisy(seed, 0.0)).is_above(0.05)


def test_what_fills_in_the_beginning_is_no_growth() -> None:
    assert slope(EPISODES, [min(each, 50.0) for each in EPISODES]).value == 0


def test_too_little_says_nothing() -> None:
    with pytest.raises(ValueError, match="too few"):
        slope(EPISODES[:20], EPISODES[:20])
    with pytest.raises(ValueError, match="no episode"):
        slope([5.0] * 100, [1.0] * 100)
