"""What is held is opened once for each loop, and closed with it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from swe_rollout.integrations import held as module
from swe_rollout.integrations.held import held, let_go


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
    assert module._HELD == {}


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
    assert module._HELD == {}


def test_loops_of_other_threads_are_closed_at_the_end_of_the_process() -> None:
    door = Door()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(held("a", door.open), loop).result(10)
    module._close_all()
    assert door.closed == 1
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()
