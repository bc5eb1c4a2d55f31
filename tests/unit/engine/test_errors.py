"""Calls that are repeated: how often, after which pause, and at whose expense."""

from __future__ import annotations

import asyncio

import pytest
from tenacity import wait_exponential, wait_random

from swe_rollout.engine.errors import BadRequestError, EngineLostError, Retries, UnavailableError
from swe_rollout.errors import EngineError
from swe_rollout.types.deadline import Deadline
from waits import stands

RETRIES = Retries(
    3, backoff=wait_exponential(multiplier=1), jitter=wait_random(0, 0.01), max_wait_s=60
)


class Failing:
    """Raises the prepared errors, one for each call, and then returns the number of its calls."""

    def __init__(self, *errors: EngineError) -> None:
        self.errors = list(errors)
        self.attempts: list[int] = []

    async def __call__(self, attempt: int) -> int:
        self.attempts.append(attempt)
        if self.errors:
            raise self.errors.pop(0)
        return len(self.attempts)


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between calls, which take no time."""
    found: list[float] = []
    real = asyncio.sleep

    async def sleep(seconds: float) -> None:
        found.append(seconds)
        await real(0)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return found


async def test_a_pause_is_what_the_engine_asks_for_with_jitter_and_a_bound(
    slept: list[float],
) -> None:
    call = Failing(
        UnavailableError("full", retry_after_s=7),
        UnavailableError("full", retry_after_s=86_400),
        EngineLostError("failed"),
    )
    assert await RETRIES.run(call, None) == 4
    assert call.attempts == [1, 2, 3, 4]
    asked, bounded, grown = slept
    assert 7 <= asked <= 7.01
    assert 60 <= bounded <= 60.01
    assert 4 <= grown <= 4.01


async def test_a_call_is_repeated_only_so_often(slept: list[float]) -> None:
    call = Failing(*[UnavailableError("full")] * 9)
    with pytest.raises(UnavailableError):
        await RETRIES.run(call, None)
    assert (len(call.attempts), len(slept)) == (4, 3)


async def test_what_fails_for_good_is_called_once(slept: list[float]) -> None:
    call = Failing(BadRequestError("no"))
    with pytest.raises(BadRequestError):
        await RETRIES.run(call, None)
    assert (len(call.attempts), slept) == (1, [])


async def test_the_episodes_clock_stands_still_until_a_call_is_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Issue 16, point 5: an engine that is full or fails costs an episode no time."""
    clock, stood = Deadline(100), list[bool]()

    async def sleep(_seconds: float) -> None:
        stood.append(stands(clock))

    monkeypatch.setattr(asyncio, "sleep", sleep)
    await RETRIES.run(Failing(EngineLostError("failed")), clock)
    assert stood == [True]
    assert not stands(clock)
