"""How much KV cache contexts will need: learned sizes, and the peak that several reach together.

Pure. A context grows with each turn and leaves all its room when its episode ends, so what matters
is not the sum of the largest sizes but the largest sum. Used by `pool.admission`.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from itertools import accumulate
from typing import Final, NamedTuple

RECENT: Final = 256
"""Sizes are learned from this many of the latest contexts and calls."""
FIRST_TOKENS: Final = 2048
"""The size of a first prompt until one is known: the tools and an issue."""
SAMPLED_TOKENS: Final = 256
"""The length of a turn until one is known."""


class _Recent:
    """The mean of the latest numbers."""

    def __init__(self, first: int) -> None:
        self._numbers: deque[int] = deque((first,), RECENT)
        self._sum = first
        self._is_guess = True

    @property
    def mean(self) -> int:
        return -(-self._sum // len(self._numbers))

    def add(self, number: int) -> None:
        if self._is_guess or len(self._numbers) == RECENT:
            self._sum -= self._numbers.popleft()
            self._is_guess = False
        self._numbers.append(number)
        self._sum += number


class Sizes:
    """How large contexts begin, grow in a turn, and end."""

    def __init__(self, limit: int | None = None) -> None:
        """`limit` is the largest context that the job allows."""
        self.limit = limit
        self._prompt = _Recent(FIRST_TOKENS)
        self._shared = _Recent(0)
        self._sampled = _Recent(SAMPLED_TOKENS)
        self._ended: deque[int] = deque(maxlen=RECENT)
        self._sorted: list[int] = []
        self._sums: list[int] = [0]
        """How much the contexts from each position of `_sorted` on have together."""

    @property
    def first(self) -> int:
        """Return the expected size of a context at its first call, without shared tokens."""
        return max(1, self._prompt.mean - self._shared.mean)

    @property
    def shared(self) -> int:
        """Return the expected number of tokens of a first call that the cache has from others."""
        return self._shared.mean

    @property
    def sampled(self) -> int:
        """Return the expected number of tokens that a call samples."""
        return self._sampled.mean

    def began(self, prompt: int, shared: int) -> None:
        """Learn from a first call, whose prompt the cache had in part from others."""
        self._prompt.add(prompt)
        self._shared.add(shared)

    def grew(self, tokens: int) -> None:
        """Learn from the tokens that a call has sampled."""
        self._sampled.add(tokens)

    def ended(self, tokens: int) -> None:
        """Learn from a context that ended."""
        self._ended.append(tokens)
        self._sorted = sorted(self._ended)
        self._sums = [0, *accumulate(reversed(self._sorted))][::-1]

    def final(self, tokens: int, shared: int = 0) -> float:
        """Return the size at which a context that has `tokens` beyond shared ones will likely end.

        That is the mean of the larger ones that have ended. Without any, it is three quarters of
        the way to the limit by factors: with a limit of 16 times the size, 8 times the size. The
        first contexts of a job rather start a little later than have to yield to each other.
        """
        first = bisect_right(self._sorted, tokens)
        if larger := len(self._sorted) - first:
            return self._sums[first] / larger
        size = shared + tokens
        most = max(size, self.limit or 0)
        return math.pow(size, 0.25) * math.pow(most, 0.75) - shared


class Growth(NamedTuple):
    """A context's size now and at its end."""

    tokens: int
    final: float


def peak(contexts: Iterable[Growth]) -> float:
    """Return the most that contexts which grow equally fast will have together.

    The sum grows until one of them ends, so it is largest just before some end.
    """
    ordered = sorted(contexts, key=lambda each: each.final - each.tokens)
    left, most = sum(each.tokens for each in ordered), 0.0
    for ended, each in enumerate(ordered):
        most = max(most, left + (each.final - each.tokens) * (len(ordered) - ended))
        left -= each.tokens
    return most
