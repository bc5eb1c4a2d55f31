"""Run blocking store calls beside an event loop, on threads that Python itself started.

obstore's own futures end on threads of its runtime, which take Python's lock whenever they please:
one that does so while the interpreter shuts down aborts the process (exit code 134 or 135 in place
of the real one). Threads of a pool are joined before that, so a script ends after its last call.
The command line does not wait that long: see `wait_until_idle`.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import TypeVar

T = TypeVar("T")

_THREADS = 32
_changed = threading.Condition()
_in_flight: set[int] = set()


async def run_call(work: Callable[[], T]) -> T:
    """Return the result of `work`, run on a thread of the pool.

    A cancelled caller goes on at once. A call that has begun can't be stopped, so it ends unheard.
    """
    return await asyncio.wrap_future(_submit(work))


def wait_until_idle(timeout_s: float) -> bool:
    """Wait for the calls in flight; return whether there is none left.

    A process with calls in flight leaves at once only by `os._exit`.
    """
    deadline = time.monotonic() + timeout_s
    with _changed:
        while _in_flight:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            _changed.wait(left_s)
    return True


def _submit(work: Callable[[], T]) -> Future[T]:
    future = _pool().submit(work)
    with _changed:
        _in_flight.add(id(future))
    future.add_done_callback(_ended)
    return future


def _ended(future: Future[T]) -> None:
    with _changed:
        _in_flight.discard(id(future))
        _changed.notify_all()


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="store")
