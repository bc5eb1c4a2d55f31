"""Run work on a turn in a thread, so that nothing a policy writes can block the event loop.

There is only one such thread: the work holds the GIL most of the time, so with more threads the
loop would only wait for each in turn. The work is linear in a turn's length and consists of short
steps, so the loop gets the GIL back within a few milliseconds. Used by `context` and by sessions.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")

_THREAD = ThreadPoolExecutor(max_workers=1, thread_name_prefix="turns")


async def off_loop(function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    """Call a function in the thread and return its result."""
    call = partial(copy_context().run, function, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_THREAD, call)


@contextmanager
def settled_heap() -> Iterator[None]:
    """Exclude all objects that exist now from garbage collection while the block runs.

    Vocabularies, templates and modules are a million objects. A full collection scans them for a
    tenth of a second, in which no thread runs, and a long turn can trigger several.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
