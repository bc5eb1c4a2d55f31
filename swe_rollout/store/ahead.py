"""Fetch objects a few ahead of their reader, in order. Used by the store for its records."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from itertools import islice
from typing import Generic, Self, TypeVar

T = TypeVar("T")


class FetchedAhead(Generic[T]):
    """Each item with the task that fetches it, while the next ones are fetched, too.

    It is no asynchronous generator: an event loop that ends closes all of these at once, and
    complains of one that another is closing.
    """

    def __init__(
        self,
        items: Iterable[T],
        fetch: Callable[[T], Coroutine[object, object, bytes]],
        *,
        most: int,
    ) -> None:
        self._left = iter(items)
        self._fetch = fetch
        self._most = most
        self._ahead = deque[tuple[T, asyncio.Task[bytes]]]()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop fetching."""
        tasks = [task for _, task in self._ahead]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def __iter__(self) -> Iterator[tuple[T, asyncio.Task[bytes]]]:
        while True:
            for item in islice(self._left, self._most - len(self._ahead)):
                self._ahead.append((item, asyncio.create_task(self._fetch(item))))
            if not self._ahead:
                return
            yield self._ahead.popleft()
