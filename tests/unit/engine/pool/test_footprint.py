"""Sizes that are learned, and the most that contexts have together."""

from __future__ import annotations

import pytest

from swe_rollout.engine.pool.footprint import RECENT, Growth, Sizes, peak


def test_contexts_that_end_together_peak_at_their_end() -> None:
    assert peak([Growth(100, 400)] * 3) == 1200


def test_contexts_that_end_one_after_the_other_peak_lower() -> None:
    # The first ends when the others have 250 and 200; two of them end with 350 and 300.
    assert peak([Growth(300, 400), Growth(200, 400), Growth(100, 400)]) == 900


def test_nothing_peaks_at_nothing() -> None:
    assert peak([]) == 0


def test_before_one_has_ended_it_is_three_quarters_of_the_way_to_the_limit() -> None:
    assert Sizes(1600).final(100) == pytest.approx(800)
    assert Sizes(1600).final(60, shared=40) == pytest.approx(760)
    assert Sizes(None).final(100) == pytest.approx(100)
    assert Sizes(1600).final(0) == 0


def test_it_is_the_mean_of_larger_ones_that_have_ended() -> None:
    sizes = Sizes(10_000)
    for tokens in (100, 300, 500):
        sizes.ended(tokens)
    assert (sizes.final(50), sizes.final(100), sizes.final(400)) == (300, 400, 500)
    assert sizes.final(1000) == pytest.approx(5623, abs=1)


def test_old_sizes_are_forgotten() -> None:
    sizes = Sizes(None)
    for _ in range(RECENT):
        sizes.ended(100)
        sizes.began(1000, 900)
        sizes.grew(7)
    assert (sizes.final(1), sizes.first, sizes.shared, sizes.sampled) == (100, 100, 900, 7)
    for _ in range(RECENT):
        sizes.ended(200)
        sizes.began(500, 0)
    assert (sizes.final(1), sizes.first, sizes.shared) == (200, 500, 0)
