"""What counts as a controller that stands still."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from rollout_dev.conformance.attacks import stalls
from waits import until


def _compute(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


async def _seen(hold: Callable[[float], None], *, above_s: float) -> stalls.Stalls:
    seen = stalls.Stalls()
    watching = asyncio.create_task(seen.watch())
    await asyncio.sleep(0.1)
    hold(0.5)
    await until(lambda: seen.longest_s > above_s)
    watching.cancel()
    return seen


async def test_a_loop_that_computes_stands_still() -> None:
    await _seen(_compute, above_s=0.4)


async def test_a_loop_that_is_blocked_for_long_stands_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stalls, "_BLOCKED_S", 0.3)
    await _seen(time.sleep, above_s=0.4)


async def test_waiting_for_a_core_is_no_standing_still() -> None:
    # As where others have the core: time goes by, and this process uses none of it.
    seen = await _seen(time.sleep, above_s=0.0)
    assert seen.longest_s < 0.4
