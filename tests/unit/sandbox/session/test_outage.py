"""Clocks of an episode whose sandbox can't be reached: they stand still, but not without end."""

from __future__ import annotations

import time

import pytest

from swe_rollout.sandbox.session import outage
from swe_rollout.sandbox.session.outage import OutageClocks
from swe_rollout.types.deadline import Deadline


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, in seconds, as the test says."""
    moment = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: moment[0])
    return moment


def test_a_clock_stands_while_it_waits_and_there_is_no_stream(now: list[float]) -> None:
    clocks, clock = OutageClocks(), Deadline(10)
    with clocks.waiting(clock):
        now[0] += 1
        with clocks.stopped():
            now[0] += 30
        now[0] += 1
    with clocks.stopped():
        now[0] += 1  # nothing was asked of the sandbox
    assert clock.remaining_s == pytest.approx(7)


def test_who_asks_during_an_outage_or_gives_up_in_it_loses_no_time_either(
    now: list[float],
) -> None:
    clocks, early, late = OutageClocks(), Deadline(10), Deadline(10)
    with clocks.stopped():
        now[0] += 1
        with clocks.waiting(early), clocks.waiting(late):
            now[0] += 5
        now[0] += 2
    assert (early.remaining_s, late.remaining_s) == pytest.approx((7, 7))


def test_two_calls_of_one_episode_stop_its_clock_once(now: list[float]) -> None:
    clocks, clock = OutageClocks(), Deadline(10)
    with clocks.waiting(clock), clocks.waiting(clock), clocks.stopped():
        now[0] += 5
    assert clock.remaining_s == pytest.approx(10)


def test_a_policy_that_disturbs_its_streams_gains_no_time_without_end(now: list[float]) -> None:
    clocks, clock = OutageClocks(), Deadline(1e6)
    with clocks.waiting(clock):
        for _ in range(1000):
            with clocks.stopped():
                now[0] += 60
    assert clock.remaining_s == pytest.approx(1e6 - 1000 * 60 + outage.MOST_S)


def test_without_an_episode_nothing_is_stopped() -> None:
    with OutageClocks().waiting(None):
        pass
