"""Bounds of samples: the rate of failures, with their owners, and how far behind a group is."""

from __future__ import annotations

import pytest

from swe_rollout.errors import Boundary, UsageError
from swe_rollout.training.sample_bounds import FailureRate, FailureRateError, WeightClock


def test_one_failure_of_two_does_not_stop() -> None:
    rate = FailureRate(0.2)
    rate.add([Boundary.SANDBOX, None])
    rate.add([Boundary.ENGINE])
    with pytest.raises(FailureRateError, match="3 of the last 4 samples failed"):
        rate.add([Boundary.ENGINE])


def test_the_reason_has_the_owners_with_their_counts() -> None:
    rate = FailureRate(0.5)
    with pytest.raises(FailureRateError) as error:
        rate.add([None] * 4 + [Boundary.SANDBOX] * 2 + [Boundary.ENGINE] * 5)
    assert error.value.owners == {Boundary.ENGINE: 5, Boundary.SANDBOX: 2}
    assert str(error.value) == (
        "7 of the last 11 samples failed: 0.5 of them may; the failures by owner: "
        "engine 5, sandbox 2"
    )


def test_a_long_good_past_does_not_hide_that_everything_fails_now() -> None:
    rate = FailureRate(0.2, window=50)
    for _ in range(1000):
        rate.add([None] * 8)
    rate.add([Boundary.SANDBOX] * 10)
    with pytest.raises(FailureRateError):
        rate.add([Boundary.SANDBOX])


def test_a_bound_of_1_never_stops() -> None:
    rate = FailureRate(1)
    rate.add([Boundary.SANDBOX] * 1000)


@pytest.mark.parametrize("bound", [-0.1, 1.1, float("nan")])
def test_a_bound_that_is_no_fraction_is_refused(bound: float) -> None:
    with pytest.raises(UsageError, match="can't be watched so"):
        FailureRate(bound)


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
