"""Deadline: time that a service takes away is not the episode's to lose."""

from __future__ import annotations

import asyncio
import time

import pytest

from swe_rollout.limits import Deadline


def test_the_clock_stands_still_while_it_is_stopped_also_when_that_nests() -> None:
    deadline = Deadline(0.05)
    with deadline.stopped(), deadline.stopped():
        before = deadline.left_s
        time.sleep(0.1)
        assert deadline.left_s == before > 0
    assert 0 < deadline.left_s <= before
    time.sleep(0.06)
    assert deadline.left_s == 0
    assert deadline.passed


async def test_what_is_inside_is_cancelled_when_the_time_is_over() -> None:
    with pytest.raises(TimeoutError):
        async with Deadline(0.01).enforced() as timeout:
            await asyncio.sleep(5)
    assert timeout.expired()


async def test_a_stop_inside_holds_the_cancellation_back() -> None:
    deadline = Deadline(0.05)
    async with deadline.enforced() as timeout:
        with deadline.stopped():
            await asyncio.sleep(0.15)
    assert not timeout.expired()
    assert 0 < deadline.left_s <= 0.05

    with pytest.raises(TimeoutError):
        async with deadline.enforced():
            await asyncio.sleep(5)


async def test_a_stop_around_holds_it_back_too_until_it_ends() -> None:
    deadline = Deadline(0.05)
    with deadline.stopped():
        async with deadline.enforced():
            await asyncio.sleep(0.15)
    assert not deadline.passed


async def test_time_given_back_moves_the_cancellation() -> None:
    deadline = Deadline(0.05)
    async with deadline.enforced():
        deadline.extend(1)
        await asyncio.sleep(0.1)
    assert not deadline.passed
