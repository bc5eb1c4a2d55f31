"""Seconds measured of several subjects, in turns."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from rollout_dev.report import Row


@dataclass(slots=True)
class Times:
    """Samples by subject."""

    by_subject: dict[str, list[float]] = field(default_factory=dict)

    def add(self, subject: str, seconds: float) -> None:
        """Add one sample."""
        self.by_subject.setdefault(subject, []).append(seconds)

    def p50_s(self, subject: str) -> float:
        """Return the median of a subject."""
        return statistics.median(self.by_subject[subject])

    def rows(self, counted: str) -> tuple[Row, ...]:
        """Return a row for each subject, in milliseconds; `counted` names the number of samples."""
        return tuple(
            Row(
                subject,
                {
                    "p50_ms": round(statistics.median(samples) * 1e3, 1),
                    "max_ms": round(max(samples) * 1e3, 1),
                    counted: len(samples),
                },
            )
            for subject, samples in self.by_subject.items()
        )
