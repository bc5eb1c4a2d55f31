"""Decide whether two jobs differ by more than chance, from the tasks that both have.

A task counts once, whatever its number of samples, which are not independent of each other. With
few tasks a sign test decides, with more a bootstrap interval of the mean difference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

LEVEL: Final = 0.05
"""The probability of mistaking chance for a difference."""
FEWEST_FOR_TEST: Final = 6
"""The fewest changed tasks to test; with fewer, even a unanimous change may be chance."""
FEWEST_FOR_INTERVAL: Final = 10
_RESAMPLES: Final = 4000
_AT_A_TIME: Final = 1 << 20
_MOST_RESAMPLED: Final = 10_000
"""The most tasks to resample; above that, the normal interval is the same."""
_EXACT: Final = 2000
_NORMAL: Final = 1.959964
_TINY: Final = 1e-12
"""The smallest real difference; anything below is rounding."""


class Certainty(StrEnum):
    """The conclusion from all tasks."""

    SAME = "no difference"
    TOO_FEW = "too few tasks to tell"
    NOT_SIGNIFICANT = "not significant"
    SIGNIFICANT = "significant"


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """The mean difference of one quantity over tasks, and its certainty."""

    pairs: int
    """Number of tasks with a value on both sides."""
    higher: int
    """Number of tasks with a higher value on the second side."""
    lower: int
    mean: float | None
    """The mean difference; None without pairs."""
    interval: tuple[float, float] | None
    """The 95 % interval, by resampling the tasks; None for few tasks."""
    p: float | None
    """The p-value of a two-sided sign test; None where no task changed."""

    @property
    def certainty(self) -> Certainty:
        """The conclusion: from the interval or, for few tasks, from the sign test."""
        if self.p is None:
            return Certainty.SAME
        if self.higher + self.lower < FEWEST_FOR_TEST:
            return Certainty.TOO_FEW
        low, high = self.interval or (0.0, 0.0)
        is_shown = self.p < LEVEL if self.interval is None else low > 0 or high < 0
        return Certainty.SIGNIFICANT if is_shown else Certainty.NOT_SIGNIFICANT


def paired(before: Sequence[float], after: Sequence[float]) -> PairedDifference:
    """Compare the values of the same tasks on two sides. The result is deterministic."""
    differences = np.asarray(after, dtype=float) - np.asarray(before, dtype=float)
    differences = differences[np.isfinite(differences)]
    differences[np.abs(differences) < _TINY] = 0.0
    higher, lower = int((differences > 0).sum()), int((differences < 0).sum())
    return PairedDifference(
        pairs=len(differences),
        higher=higher,
        lower=lower,
        mean=float(differences.mean()) if len(differences) else None,
        interval=_interval(differences),
        p=_sign_test(higher, lower),
    )


def _interval(differences: np.ndarray) -> tuple[float, float] | None:
    count = len(differences)
    if count < FEWEST_FOR_INTERVAL:
        return None
    if count > _MOST_RESAMPLED:
        reach = _NORMAL * float(differences.std(ddof=1)) / math.sqrt(count)
        return float(differences.mean()) - reach, float(differences.mean()) + reach
    random = np.random.default_rng(0)
    rows = max(1, _AT_A_TIME // count)
    means: list[float] = []
    while len(means) < _RESAMPLES:
        chosen = random.integers(0, count, size=(min(rows, _RESAMPLES - len(means)), count))
        means += differences[chosen].mean(axis=1).tolist()
    low, high = np.quantile(means, [LEVEL / 2, 1 - LEVEL / 2])
    return float(low), float(high)


def _sign_test(higher: int, lower: int) -> float | None:
    """Return the probability of a split at least this uneven if both directions are as likely."""
    count, fewer = higher + lower, min(higher, lower)
    if not count:
        return None
    if count > _EXACT:
        distance = (count - 2 * fewer - 1) / math.sqrt(count)
        return min(1.0, math.erfc(max(distance, 0.0) / math.sqrt(2)))
    ways = sum(math.comb(count, each) for each in range(fewer + 1))
    return min(1.0, ways / (1 << (count - 1)))
