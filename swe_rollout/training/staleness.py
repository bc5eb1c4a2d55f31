"""How far behind the trainer's weights a sample is, in weight versions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

_REMEMBERED = 4096


class StaleAction(StrEnum):
    """What becomes of a group that is too far behind."""

    MARK = "mark"
    """It is handed out with `stale` set. Dropping favours short episodes, which age less."""
    DROP = "drop"
    """It is not handed out. It is logged and counted, and its records stay in the store."""


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
        """Set the version that the engines have from now on."""
        self._now = str(version)
        self._positions.pop(self._now, None)
        self._positions[self._now] = self._announced
        self._announced += 1
        if len(self._positions) > _REMEMBERED:
            del self._positions[next(iter(self._positions))]

    def lag(self, versions: Iterable[str | None]) -> int | None:
        """Return how many versions the oldest of these is behind; never below 0.

        Versions that are whole numbers are subtracted, others are counted in the order of their
        announcements. None if nothing was announced, or one of them is not known.
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
