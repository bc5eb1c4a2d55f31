"""A rate of failures above the bound stops, with the owners; a few failures do not."""

from __future__ import annotations

import pytest

from swe_rollout.errors import Boundary, UsageError
from swe_rollout.training.sample_bounds import FailureRate, FailureRateError


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
