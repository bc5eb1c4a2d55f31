"""How long this process has seen things as they are, by a clock that never jumps.

Time limits count from the first sight of a thing, not from the times that objects carry. Those are
of the clocks of other machines: where one of them jumps, a limit would pass at once, or a day late.
An operator that begins anew counts anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TypeAlias


class Stage(StrEnum):
    """What an object is like."""

    THERE = "there"
    RUNNING = "running"
    STUCK = "stuck"
    DELETING = "deleting"
    OVER = "over"


Sight: TypeAlias = "tuple[str, Stage]"
"""The uid of an object, and what it is like."""


class Sightings:
    """The first sight of each thing, for as long as it is seen again."""

    def __init__(self) -> None:
        self._first_s: dict[Sight, float] = {}

    def update(self, sights: Iterable[Sight], now_s: float) -> Mapping[Sight, float]:
        """Return for how many seconds each of these has been seen; others are forgotten."""
        self._first_s = {each: self._first_s.get(each, now_s) for each in sights}
        return {each: now_s - first_s for each, first_s in self._first_s.items()}
