"""Synchronous calls, in scripts and in notebooks; what is held is opened once for each loop."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext

import pytest

from swe_rollout.errors import UsageError
from swe_rollout.launcher import sync
from swe_rollout.launcher.sync import LoopThread, held, let_go, run_sync


async def _return(value: int) -> int:
    await asyncio.sleep(0)
    return value


def test_calls_are_synchronous_without_a_loop() -> None:
    assert run_sync(_return(3)) == 3


async def test_calls_are_synchronous_inside_a_notebooks_loop() -> None:
    async def broken() -> None:
        raise UsageError("wrong")

    assert run_sync(_return(3)) == 3
    with pytest.raises(UsageError, match="wrong"):
        run_sync(broken())


def test_an_interrupt_inside_a_notebook_lets_the_work_clean_up() -> None:
    code = """
import asyncio, os, signal, threading
from swe_rollout.launcher.sync import run_sync

async def work():
    try:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        await asyncio.sleep(60)
    finally:
        print("cleaned up", flush=True)

def cell():
    try:
        run_sync(work())
    except KeyboardInterrupt:
        print("interrupted", flush=True)

# A notebook's kernel runs cells inside its loop, with Python's own signal handler.
loop = asyncio.new_event_loop()
loop.call_soon(cell)
loop.call_later(0.5, loop.stop)
loop.run_forever()
loop.close()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=30
    )

    assert done.stdout.split("\n")[:2] == ["cleaned up", "interrupted"], done.stderr


class Door:
    """Counts how often it is opened and closed; the first openings may fail."""

    def __init__(self, *, failures: int = 0) -> None:
        self.opened = self.closed = 0
        self.failures = failures

    @asynccontextmanager
    async def open(self) -> AsyncIterator[int]:
        await asyncio.sleep(0.01)
        if self.failures:
            self.failures -= 1
            raise OSError("stuck")
        self.opened += 1
        try:
            yield self.opened
        finally:
            await asyncio.sleep(0.01)
            self.closed += 1


async def test_many_callers_open_once_and_each_key_has_its_own() -> None:
    door = Door()
    assert await asyncio.gather(*(held("a", door.open) for _ in range(5))) == [1] * 5
    assert await held("b", door.open) == 2
    await let_go()
    assert (door.opened, door.closed) == (2, 2)
    assert await held("a", door.open) == 3
    await let_go()
    assert sync._HELD == {}


async def test_what_others_hold_stays_when_one_lets_go() -> None:
    door = Door()
    await asyncio.gather(*(held(key, door.open) for key in "ab"))
    await let_go([])
    assert door.closed == 0
    await let_go(["a", "c"])
    assert door.closed == 1
    assert await held("b", door.open) <= 2
    assert await held("a", door.open) == 3
    await let_go()
    assert door.closed == 3


async def test_what_cannot_be_opened_is_tried_by_the_next_call() -> None:
    door = Door(failures=1)
    results = await asyncio.gather(
        *(held("a", door.open) for _ in range(3)), return_exceptions=True
    )
    assert [str(each) for each in results] == ["stuck"] * 3
    assert await held("a", door.open) == 1
    await let_go()


async def test_a_cancelled_caller_ends_nobody_elses() -> None:
    door = Door()
    first = asyncio.create_task(held("a", door.open))
    second = asyncio.create_task(held("a", door.open))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == 1
    with pytest.raises(asyncio.CancelledError):
        await first
    await let_go()


def test_it_is_closed_with_its_loop() -> None:
    door = Door()
    asyncio.run(held("a", door.open))
    assert (door.opened, door.closed) == (1, 1)
    assert sync._HELD == {}


def test_loops_of_other_threads_are_closed_at_the_end_of_the_process() -> None:
    door = Door()
    with LoopThread(nullcontext(), name="other") as thread:
        thread.run(held("a", door.open))
        sync._close_all()
        assert door.closed == 1
