"""Stop a trainer whose samples fail: the rate of the last samples, by owner."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping

from swe_rollout.errors import Boundary, SweRolloutError, UsageError

MAX_FAILED_FRACTION = 0.2
FLOOR = 10
"""While fewer samples were seen, the bound is that of this many: one failure of two is no rate."""
WINDOW = 200
"""Only the last ones count: a long good past does not hide that everything fails now."""


class FailureRateError(SweRolloutError):
    """Too many samples failed: something breaks them, or the policy ends its sandboxes."""

    def __init__(self, owners: Mapping[Boundary, int], *, seen: int, bound: float) -> None:
        failed = sum(owners.values())
        counts = ", ".join(f"{owner} {count}" for owner, count in owners.items())
        super().__init__(
            f"{failed} of the last {seen} samples failed",
            why=f"{bound:g} of them may; the failures by owner: {counts}",
            fix="fix the cause (`swe-rollout status` lists the failures), then go on: failed "
            "samples have no reward, and committed episodes stay",
        )
        self.owners = dict(owners)
        """Failures by the part of the system that owns them, the most frequent first."""


class FailureRate:
    """Watches the samples that a trainer gets, and raises when too many of them failed."""

    def __init__(
        self, bound: float = MAX_FAILED_FRACTION, *, floor: int = FLOOR, window: int = WINDOW
    ) -> None:
        """`bound` is the fraction of the last `window` samples that may fail; 1: all of them."""
        if not 0 <= bound <= 1 or not 0 < floor <= window:
            raise UsageError(
                "the failure rate can't be watched so",
                why=f"bound={bound:g}, floor={floor}, window={window}",
                fix="use a bound from 0 to 1, and a window of at least the floor",
            )
        self._bound = bound
        self._floor = floor
        self._last: deque[Boundary | None] = deque(maxlen=window)

    def add(self, owners: Iterable[Boundary | None]) -> None:
        """Count samples, given as the owner of each one's failure; None: it did not fail.

        Raises FailureRateError when the rate is above the bound after them.
        """
        self._last.extend(owners)
        failed = Counter(owner for owner in self._last if owner is not None)
        if failed.total() > self._bound * max(len(self._last), self._floor):
            counts = dict(failed.most_common())
            raise FailureRateError(counts, seen=len(self._last), bound=self._bound)
