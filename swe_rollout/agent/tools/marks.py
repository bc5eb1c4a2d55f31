"""Marks: texts that a policy can't guess, such as separators between parts of a command's output.

A call whose tool draws its own random numbers can't be replayed with the same commands. If the
episode's journal keeps a seed, marks are derived from it, so a resumed episode gets the same marks.
"""

from __future__ import annotations

import hmac
import secrets
from collections import Counter
from contextvars import ContextVar
from typing import Final

ACTING: Final = ContextVar("acting", default=0)
"""The branch of the agent whose step is running; it separates overlapping calls of agents."""


class Marks:
    """The marks of one episode, in the order in which each of its agents requests them."""

    def __init__(self, seed: str) -> None:
        """`seed` is hexadecimal, and hidden from the policy."""
        self._seed = bytes.fromhex(seed)
        self._drawn = Counter[int]()

    def next(self, size: int) -> str:
        """Return the acting agent's next mark, of `size` bytes (at most 32) in hexadecimal."""
        agent = ACTING.get()
        self._drawn[agent] += 1
        text = f"{agent}/{self._drawn[agent]}".encode()
        return hmac.digest(self._seed, text, "sha256")[:size].hex()


MARKS: Final[ContextVar[Marks | None]] = ContextVar("marks", default=None)
"""The marks of the running episode; if None, every mark is random."""


def new_mark(size: int) -> str:
    """Return a new mark of `size` bytes (at most 32), in hexadecimal."""
    marks = MARKS.get()
    return secrets.token_hex(size) if marks is None else marks.next(size)
