"""Fetch objects a few ahead of their reader, in order. Used by the store for its records."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, Self, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class FetchedAhead(Generic[T]):
    """Each item with the task that fetches it, while the next ones are fetched, too.

    It is no asynchronous generator: an event loop that ends closes all of these at once, and
    complains of one that another is closing.
    """

    items: Iterator[T]
    fetch: Callable[[T], Coroutine[object, object, bytes]]
    most: int
    _ahead: deque[tuple[T, asyncio.Task[bytes]]] = field(default_factory=deque)

    def __iter__(self) -> Iterator[tuple[T, asyncio.Task[bytes]]]:
        while True:
            for item in islice(self.items, self.most - len(self._ahead)):
                self._ahead.append((item, asyncio.create_task(self.fetch(item))))
            if not self._ahead:
                return
            yield self._ahead.popleft()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [task for _, task in self._ahead]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
