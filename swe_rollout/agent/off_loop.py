"""Run work on a turn in a thread, so that nothing a policy writes holds the event loop.

There is one such thread: the work holds Python's lock for most of its time, so more of them would
only make the loop wait for each in turn. What it runs is linear in a turn, and made of short steps:
the loop gets the lock back within a few milliseconds. Used by `context`, and by sessions.
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
    """Call a function in the thread, and return what it returns."""
    call = partial(copy_context().run, function, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_THREAD, call)


@contextmanager
def settled_heap() -> Iterator[None]:
    """Keep the garbage collector from what is loaded by now while the block runs.

    Vocabularies, templates and modules are a million objects. A full collection looks through them
    for a tenth of a second, in which no thread runs, and a long turn can start several.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
