"""Synchronous calls of asynchronous work: in scripts, and in notebooks whose loop runs already."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")


def run_sync(work: Coroutine[object, object, T]) -> T:
    """The result of `work`. ^C cancels it and lets it clean up first."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    return _beside_the_loop(work)


def _beside_the_loop(work: Coroutine[object, object, T]) -> T:
    """Run `work` on a loop of its own: a notebook's loop can't be waited for from inside it."""
    cancel: Future[Callable[[], object]] = Future()

    async def main() -> T:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(work)
        cancel.set_result(lambda: loop.call_soon_threadsafe(task.cancel))
        return await task

    with ThreadPoolExecutor(1, thread_name_prefix="swe-rollout") as threads:
        result = threads.submit(asyncio.run, main())
        try:
            return result.result()
        except KeyboardInterrupt:
            cancel.result()()
            raise
