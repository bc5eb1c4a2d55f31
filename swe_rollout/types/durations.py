"""Durations and rates of streams of any length in fixed memory, for live views and statistics."""

from __future__ import annotations

import math
from array import array
from typing import Final

_GROWTH: Final = 1.08
_LEAST_S: Final = 1e-3
_MOST_S: Final = 1e5
_LOG_GROWTH: Final = math.log(_GROWTH)
_BUCKETS: Final = math.ceil(math.log(_MOST_S / _LEAST_S) / _LOG_GROWTH) + 2
_RECENT: Final = 2000
_SLOTS: Final = 60


class DurationHistogram:
    """Quantiles of durations, accurate to 4 %, from buckets of growing width."""

    __slots__ = ("_buckets", "count", "longest_s", "total_s")

    def __init__(self) -> None:
        self._buckets = array("Q", bytes(8 * _BUCKETS))
        self.count = 0
        self.total_s = 0.0
        self.longest_s = 0.0

    def add(self, seconds: float) -> None:
        """Count a duration; NaN and negative durations count as 0."""
        if not seconds >= _LEAST_S:
            bucket = 0
            seconds = max(0.0, seconds) if seconds == seconds else 0.0  # noqa: PLR0124 - not a number
        else:
            seconds = min(seconds, _MOST_S)
            bucket = 1 + int(math.log(seconds / _LEAST_S) / _LOG_GROWTH)
        self._buckets[bucket] += 1
        self.count += 1
        self.total_s += seconds
        self.longest_s = max(self.longest_s, seconds)

    def merge(self, other: DurationHistogram) -> None:
        """Add the durations of another histogram."""
        for bucket, count in enumerate(other._buckets):
            self._buckets[bucket] += count
        self.count += other.count
        self.total_s += other.total_s
        self.longest_s = max(self.longest_s, other.longest_s)

    @property
    def mean_s(self) -> float | None:
        """The mean; None without durations."""
        return self.total_s / self.count if self.count else None

    def quantile(self, share: float) -> float | None:
        """Return approximately the quantile `share` of the durations; None without durations."""
        wanted = max(1, math.ceil(share * self.count))
        seen = 0
        for bucket, count in enumerate(self._buckets):
            seen += count
            if count and seen >= wanted:
                return _middle_s(bucket)
        return None

    def to_dict(self) -> dict[str, object]:
        """Return the histogram as plain values."""
        return {
            "count": self.count,
            "total": self.total_s,
            "mean": self.mean_s,
            "p50": self.quantile(0.5),
            "p95": self.quantile(0.95),
            "max": self.longest_s if self.count else None,
        }

    def histogram(self, edges_s: tuple[float, ...]) -> tuple[int, ...]:
        """Count the durations below the first edge, between edges, and from the last one on."""
        bins = [0] * (len(edges_s) + 1)
        for bucket, count in enumerate(self._buckets):
            if count:
                bins[sum(_middle_s(bucket) >= edge for edge in edges_s)] += count
        return tuple(bins)


class RecentDurations:
    """Quantiles of the last few thousand durations, so that a change shows soon."""

    __slots__ = ("_before", "_now", "total_s")

    def __init__(self) -> None:
        self._before = DurationHistogram()
        self._now = DurationHistogram()
        self.total_s = 0.0
        """The sum of all durations, not only the recent ones."""

    def add(self, seconds: float) -> None:
        """Count a duration."""
        if self._now.count >= _RECENT:
            self._before, self._now = self._now, DurationHistogram()
        before_s = self._now.total_s
        self._now.add(seconds)
        self.total_s += self._now.total_s - before_s

    def recent(self) -> DurationHistogram:
        """Return the last 2,000 to 4,000 durations, or all if there are fewer."""
        both = DurationHistogram()
        both.merge(self._before)
        both.merge(self._now)
        return both


class RateMeter:
    """The rate of a stream over the last minutes."""

    __slots__ = ("_amounts", "_latest", "_since_s", "_slot_s")

    def __init__(self, now_s: float, *, window_s: float = 300.0) -> None:
        self._slot_s = window_s / _SLOTS
        self._amounts = [0.0] * _SLOTS
        self._since_s = now_s
        self._latest = int(now_s / self._slot_s)

    def add(self, now_s: float, amount: float = 1.0) -> None:
        """Count an amount at `now_s`, which must never go back."""
        self._advance(now_s)
        self._amounts[self._latest % _SLOTS] += amount

    def per_s(self, now_s: float) -> float:
        """Return the amount per second in the window, or since the start if that is later."""
        self._advance(now_s)
        window_s = now_s - (self._latest - _SLOTS + 1) * self._slot_s
        return sum(self._amounts) / max(min(window_s, now_s - self._since_s), 1.0)

    def _advance(self, now_s: float) -> None:
        slot = int(now_s / self._slot_s)
        for passed in range(max(self._latest + 1, slot - _SLOTS + 1), slot + 1):
            self._amounts[passed % _SLOTS] = 0.0
        self._latest = max(self._latest, slot)


def _middle_s(bucket: int) -> float:
    return 0.0 if bucket == 0 else _LEAST_S * _GROWTH ** (bucket - 0.5)
