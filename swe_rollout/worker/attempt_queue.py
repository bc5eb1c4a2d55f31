"""The attempts that wait to be run: listed when their turn comes, for a job may have millions."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import chain, islice
from typing import Protocol

from swe_rollout.context import Attempt


class Attempts(Protocol):
    """A number of attempts."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Attempt]: ...


class AttemptQueue:
    """Attempts in the order they were added; one that comes back is first again."""

    def __init__(self) -> None:
        self._front: deque[Attempt] = deque()
        self._rest: Iterator[Attempt] = iter(())
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, attempts: Attempts) -> None:
        """Append attempts."""
        self._rest = chain(self._rest, attempts)
        self._size += len(attempts)

    def pop(self) -> Attempt:
        """Take the first one."""
        attempt = self._front.popleft() if self._front else next(self._rest)
        self._size -= 1
        return attempt

    def put_back(self, attempt: Attempt) -> None:
        """Put an attempt before all others."""
        self._front.appendleft(attempt)
        self._size += 1

    def peek(self, count: int) -> tuple[Attempt, ...]:
        """Return the first ones, at most `count`; they stay."""
        self._front.extend(islice(self._rest, max(0, count - len(self._front))))
        return tuple(islice(self._front, count))
