"""Bound how many of a trainer's samples may fail, and how stale they may be."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from swe_rollout.errors import Boundary, SweRolloutError, UsageError

MAX_FAILED_FRACTION = 0.2
FLOOR = 10
"""The rate is relative to at least this many samples: one failure in two is no rate."""
WINDOW = 200
"""Only the last ones count: a long good past must not hide that everything fails now."""


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
    """Watches a trainer's samples, and raises when too many of them have failed."""

    def __init__(
        self, bound: float = MAX_FAILED_FRACTION, *, floor: int = FLOOR, window: int = WINDOW
    ) -> None:
        """Bound the fraction of the last `window` samples that may fail; 1 allows all of them."""
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
        """Count samples, given as the owner of each one's failure, or None if it did not fail.

        Raises FailureRateError if the rate then exceeds the bound.
        """
        self._last.extend(owners)
        failed = Counter(owner for owner in self._last if owner is not None)
        if failed.total() > self._bound * max(len(self._last), self._floor):
            counts = dict(failed.most_common())
            raise FailureRateError(counts, seen=len(self._last), bound=self._bound)


_REMEMBERED = 4096


class StaleAction(StrEnum):
    """What happens to a group that is too stale."""

    MARK = "mark"
    """Hand it out with `stale` set. Dropping favours short episodes, which age less."""
    DROP = "drop"
    """Don't hand it out. It is logged and counted, and its records stay in the store."""


@dataclass(frozen=True, slots=True)
class Staleness:
    """The bound on how old a group may be."""

    max_lag: int
    """Weight versions between the oldest one that sampled a token and the announced one."""
    action: StaleAction = StaleAction.MARK


class WeightClock:
    """The weight versions that a trainer announces, in order."""

    def __init__(self) -> None:
        self._now: str | None = None
        self._positions: dict[str, int] = {}
        self._announced = 0

    def announce(self, version: str | int) -> None:
        """Set the version that the engines use from now on."""
        self._now = str(version)
        self._positions.pop(self._now, None)
        self._positions[self._now] = self._announced
        self._announced += 1
        if len(self._positions) > _REMEMBERED:
            del self._positions[next(iter(self._positions))]

    def lag(self, versions: Iterable[str | None]) -> int | None:
        """Return how many versions the oldest of these is behind, at least 0.

        Whole-number versions are subtracted, others counted in the order of their announcements.
        None if nothing was announced, or if one of them is unknown.
        """
        lags = [self._lag(version) for version in versions]
        known = [lag for lag in lags if lag is not None]
        return max(known) if lags and len(known) == len(lags) else None

    def _lag(self, version: str | None) -> int | None:
        if version is None or self._now is None:
            return None
        if version.isdecimal() and self._now.isdecimal():
            return max(0, int(self._now) - int(version))
        position = self._positions.get(version)
        return None if position is None else self._announced - 1 - position
