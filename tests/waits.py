"""Wait for what has to happen, however slow the machine is.

A test that sleeps and then looks fails where the machine needs longer; one that waits for what it
looks for takes as long as it takes. The bound only ends a test that fails anyway.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from swe_rollout.types.deadline import Deadline

PATIENCE_S = 60.0


async def until(condition: Callable[[], object], *, within_s: float = PATIENCE_S) -> None:
    """Let other tasks go on until the condition holds."""
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, f"it did not happen within {within_s:g} s"
        await asyncio.sleep(0.005)


def block_until(condition: Callable[[], object], *, within_s: float = PATIENCE_S) -> None:
    """Wait until the condition holds, where no event loop runs, or in a thread of its own."""
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, f"it did not happen within {within_s:g} s"
        time.sleep(0.02)


def stands(clock: Deadline) -> bool:
    """Whether the clock is paused now."""
    before = clock.remaining_s
    time.sleep(0.001)
    return clock.remaining_s == before


def spared_s(clock: Deadline, seconds: float) -> float:
    """Return how much of the time that passed was not charged to a clock of `seconds`.

    It has the same value on a slow machine, where both times are longer.
    """
    return clock.elapsed_s - (seconds - clock.remaining_s)
