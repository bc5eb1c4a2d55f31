"""Measure how long this process has seen objects in a stage, by a clock that never jumps.

Time limits count from the first sight of an object, not from the times stored in it. Those come
from other machines' clocks: if one jumps, a limit would pass at once, or a day late. A restarted
operator starts counting again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TypeAlias


class Stage(StrEnum):
    """The stage that an object is in."""

    THERE = "there"
    RUNNING = "running"
    STUCK = "stuck"
    DELETING = "deleting"
    OVER = "over"


Sight: TypeAlias = "tuple[str, Stage]"
"""The uid of an object, and its stage."""


class Sightings:
    """Remembers the first sight of each object until it is no longer seen."""

    def __init__(self) -> None:
        self._first_s: dict[Sight, float] = {}

    def update(self, sights: Iterable[Sight], now_s: float) -> Mapping[Sight, float]:
        """Return for how many seconds each sight has been seen; forget all others."""
        self._first_s = {each: self._first_s.get(each, now_s) for each in sights}
        return {each: now_s - first_s for each, first_s in self._first_s.items()}
