"""Call asynchronous code synchronously, in scripts and in notebooks with a running event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def run_sync(work: Coroutine[object, object, T]) -> T:
    """Return the result of `work`. ^C cancels it and waits for its cleanup."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    return _run_in_thread(work)


def _run_in_thread(work: Coroutine[object, object, T]) -> T:
    """Run `work` on a loop of its own: code inside a notebook's loop can't wait for that loop."""
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
