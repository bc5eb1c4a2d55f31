"""Slopes of counts over episodes, with their confidence. Pure.

Samples of a running process depend on those before. So the line is fitted through the means of
batches, which hardly do, and its error is estimated from them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

BATCHES: Final = 10
_T: Final = 5.041
"""99.95 % of Student's distribution with `BATCHES` - 2 degrees of freedom."""
WARM_UP: Final = 0.3
"""Share of the samples in which caches fill; they are left out."""


@dataclass(frozen=True, slots=True)
class Slope:
    """How fast something grows, per episode."""

    value: float
    error: float
    """Half of the interval that holds the true slope with 99.9 % confidence."""
    level: float
    """The mean after the warm-up."""

    def is_above(self, allowed: float) -> bool:
        """Whether it grows faster, with confidence."""
        return self.value - self.error > allowed


def slope(episodes: Sequence[float], counts: Sequence[float]) -> Slope:
    """Return the slope of counts over the episodes that were done when they were taken.

    Raises ValueError for fewer than two samples in each batch, and where no episode was done.
    """
    first = int(len(episodes) * WARM_UP)
    xs, ys = episodes[first:], counts[first:]
    size = len(xs) // BATCHES
    if size < 2:  # noqa: PLR2004
        raise ValueError(f"{len(episodes)} samples are too few: run it for longer")
    points = [
        (fmean(xs[at : at + size]), fmean(ys[at : at + size]))
        for at in range(len(xs) - BATCHES * size, len(xs), size)
    ]
    mean_x, mean_y = fmean(x for x, _ in points), fmean(y for _, y in points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    if not spread:
        raise ValueError("no episode was done: run it for longer")
    value = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    rest = sum((y - mean_y - value * (x - mean_x)) ** 2 for x, y in points)
    return Slope(value, _T * math.sqrt(rest / (BATCHES - 2) / spread), mean_y)
