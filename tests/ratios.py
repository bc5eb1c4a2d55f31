"""Compare times with a floor that is measured in the same test, on the same machine, in turns.

A bound in seconds that holds on a slow machine lets a fast one become three times as slow unseen.
The least of several rounds is taken of either: what else the machine does only adds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Awaitable, Callable

ROUNDS = 4


async def ratio(
    work: Callable[[], Awaitable[object]],
    floor: Callable[[], Awaitable[object]],
    *,
    rounds: int = ROUNDS,
) -> float:
    """Return how many times as long the work takes as the floor."""
    took: list[float] = []
    floors: list[float] = []
    for _ in range(rounds):
        for each, times in ((floor, floors), (work, took)):
            began = time.perf_counter()
            await each()
            times.append(time.perf_counter() - began)
    return min(took) / min(floors)


def growth(work: Callable[[int], object], short: int, long: int, *, floor_s: float = 0.05) -> float:
    """Return the processor time of `long` over that of `short`, as a multiple of what linear costs.

    1 where the work is linear, `long / short` where it is quadratic; 0 where the long one takes
    less than `floor_s`, in which other work of the machine would show.
    """
    took = thread_s(lambda: work(long), rounds=2)
    if took < floor_s:
        return 0.0
    return took / thread_s(lambda: work(short), rounds=2) * short / long


def cpu_ratio(work: Callable[[], object], floor: Callable[[], object]) -> float:
    """Return how many times as much of this thread's processor time the work takes as the floor."""
    return thread_s(work) / thread_s(floor)


def thread_s(work: Callable[[], object], *, rounds: int = ROUNDS) -> float:
    """Return the processor time of this thread, the least of several runs."""

    def once() -> float:
        began = time.thread_time()
        work()
        return time.thread_time() - began

    return min(once() for _ in range(rounds))


def peak_bytes(work: Callable[[], object]) -> int:
    """Return the most memory that Python's objects take at once during the work."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def cpu_s(*arguments: str) -> float:
    """Return the processor time of a Python program that succeeds, the least of several runs."""

    def once() -> float:
        process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        return used.ru_utime + used.ru_stime

    return min(once() for _ in range(ROUNDS))
