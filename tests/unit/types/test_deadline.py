"""Deadline: the clock pauses, and the block is cancelled when the time is used up."""

from __future__ import annotations

import asyncio
import time

import pytest

from swe_rollout.types import deadline
from swe_rollout.types.deadline import Deadline
from waits import PATIENCE_S, spared_s


class Time:
    """Passes when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def passes(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def moment(monkeypatch: pytest.MonkeyPatch) -> Time:
    found = Time()
    monkeypatch.setattr(time, "monotonic", lambda: found.now)
    return found


def test_a_paused_clock_stands_still_also_when_pauses_nest(moment: Time) -> None:
    deadline = Deadline(5)
    with deadline.paused(), deadline.paused():
        moment.passes(10)
        assert deadline.remaining_s == 5
    moment.passes(4)
    assert deadline.remaining_s == 1
    assert not deadline.expired
    moment.passes(2)
    assert deadline.remaining_s == 0
    assert deadline.expired


async def test_the_block_is_cancelled_when_the_time_is_used_up() -> None:
    with pytest.raises(TimeoutError):
        async with Deadline(0.01).enforced() as timeout:
            await asyncio.sleep(5)
    assert timeout.expired()


async def test_a_pause_inside_postpones_the_cancellation() -> None:
    deadline = Deadline(1)
    async with deadline.enforced() as timeout:
        with deadline.paused():
            await asyncio.sleep(1.1)
    assert not timeout.expired()
    assert 0 < deadline.remaining_s <= 1

    with pytest.raises(TimeoutError):
        async with deadline.enforced():
            await asyncio.sleep(5)


async def test_a_pause_around_the_block_postpones_it_too() -> None:
    deadline = Deadline(1)
    with deadline.paused():
        async with deadline.enforced():
            await asyncio.sleep(1.1)
    assert not deadline.expired


async def test_extending_the_deadline_moves_the_cancellation() -> None:
    deadline = Deadline(0.05)
    async with deadline.enforced():
        deadline.extend(3600)
        await asyncio.sleep(0.1)
    assert not deadline.expired


async def test_blocks_may_nest_and_the_outer_one_ends_after_its_grace() -> None:
    clock = Deadline(0.05)
    fired: list[bool] = []

    async def hang_twice() -> None:
        async with clock.enforced(grace_s=1) as outer:
            try:
                async with clock.enforced() as inner:
                    await asyncio.Event().wait()
            except TimeoutError:
                fired.extend([inner.expired(), outer.expired()])
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await hang_twice()
    assert fired == [True, False]


async def test_a_reset_moves_the_end_of_a_block_that_runs() -> None:
    clock = Deadline(3600.0)

    async def hang() -> None:
        async with clock.enforced():
            clock.reset(0.05)
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await hang()
    clock.reset(3600.0)
    assert not clock.expired


def test_the_clock_goes_on_from_where_an_earlier_process_was(moment: Time) -> None:
    deadline = Deadline(100)
    deadline.catch_up(elapsed_s=70, remaining_s=40)
    moment.passes(1)
    assert (deadline.elapsed_s, deadline.remaining_s) == (71, 39)
    # What is past changes nothing: calls that overlapped were recorded in any order.
    deadline.catch_up(elapsed_s=60, remaining_s=50)
    assert (deadline.elapsed_s, deadline.remaining_s) == (71, 39)


async def test_a_block_is_cancelled_when_the_earlier_process_had_no_time_left() -> None:
    deadline = Deadline(100)

    async def resumed() -> None:
        async with deadline.enforced():
            deadline.catch_up(elapsed_s=100, remaining_s=0)
            await asyncio.sleep(50)

    with pytest.raises(TimeoutError):
        await resumed()
    assert deadline.expired


def test_a_pause_stops_the_time_that_is_left_but_not_the_time_that_passes(moment: Time) -> None:
    deadline = Deadline(100)
    with deadline.paused():
        moment.passes(20)
        assert deadline.elapsed_s == 20
    assert deadline.remaining_s == 100


async def test_a_process_that_is_stopped_costs_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 16, point 5: SIGSTOP and freezers are the platform's. A limit still ends afterwards."""
    monkeypatch.setattr(deadline, "BEAT_S", 0.05)
    monkeypatch.setattr(deadline, "STOPPED_S", 0.5)
    clock = Deadline(1)
    async with clock.enforced():
        await asyncio.sleep(0.01)
        time.sleep(3)  # noqa: ASYNC251 - as if it was stopped
        await asyncio.sleep(0.01)
    assert spared_s(clock, 1) > 2.5
    with pytest.raises(TimeoutError):
        async with clock.enforced():
            await asyncio.sleep(PATIENCE_S)
