"""How far behind a group is, in weight versions of either kind."""

from __future__ import annotations

from swe_rollout.training.sample_bounds import WeightClock


def test_numbers_are_subtracted_and_never_below_0() -> None:
    clock = WeightClock()
    assert clock.lag(["3"]) is None
    clock.announce(7)
    assert clock.lag(["7"]) == 0
    assert clock.lag(["7", "3", "6"]) == 4
    assert clock.lag(["9"]) == 0


def test_names_are_counted_in_the_order_of_their_announcements() -> None:
    clock = WeightClock()
    for version in ("first", "second", "third"):
        clock.announce(version)
    assert [clock.lag([each]) for each in ("first", "second", "third")] == [2, 1, 0]
    assert clock.lag(["unheard-of"]) is None
    clock.announce("first")
    assert clock.lag(["first"]) == 0


def test_what_is_not_known_makes_the_lag_unknown() -> None:
    clock = WeightClock()
    clock.announce(2)
    assert clock.lag([]) is None
    assert clock.lag(["1", None]) is None


def test_a_job_that_never_ends_takes_no_more_memory() -> None:
    clock = WeightClock()
    for version in range(10_000):
        clock.announce(f"v{version}")
    assert clock.lag(["v9998"]) == 1
    assert clock.lag(["v0"]) is None
