"""Fetch objects a few ahead of their reader, in order. Used by the store for its records."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


async def fetched_ahead(
    items: Iterable[T], fetch: Callable[[T], Coroutine[object, object, bytes]], *, most: int
) -> AsyncGenerator[tuple[T, asyncio.Task[bytes]], None]:
    """Yield each item with the task that fetches it, while the next ones are fetched, too."""
    left = iter(items)
    ahead = deque[tuple[T, asyncio.Task[bytes]]]()
    try:
        while True:
            for item in islice(left, most - len(ahead)):
                ahead.append((item, asyncio.create_task(fetch(item))))
            if not ahead:
                return
            yield ahead.popleft()
    finally:
        for _, task in ahead:
            task.cancel()
        await asyncio.gather(*(task for _, task in ahead), return_exceptions=True)
