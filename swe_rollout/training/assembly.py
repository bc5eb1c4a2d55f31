"""Assemble a group from records: which samples make it up, and which are still missing.

A sample that replaces a failed one has its own number, as `store.refills` says: a reader can tell
from the numbers alone which sample replaces which.
"""

from __future__ import annotations

from swe_rollout.errors import Boundary
from swe_rollout.store.damage import DamagedRecord
from swe_rollout.store.refills import replacement
from swe_rollout.training.groups import FailedSample, Group
from swe_rollout.types.trajectory import Trajectory


class Assembly:
    """A group while its samples arrive, in any order."""

    def __init__(self, group_id: str, *, wanted: int, refills: int, first: int = 0) -> None:
        """Expect `wanted` samples, numbered from `first` on; each is replaced up to `refills`
        times.
        """
        self._group_id = group_id
        self._wanted = wanted
        self._refills = refills
        self._first = first
        self._records: dict[int, Trajectory] = {}
        self._damaged: dict[int, FailedSample] = {}
        self._duplicates = 0
        self._missing = {slot: first + slot for slot in range(wanted)}
        """The sample that each place of the group waits for."""

    def add(self, trajectory: Trajectory) -> None:
        """Add a sample; only the first one of each number counts."""
        self._duplicates += trajectory.episode.sample in self._records
        self._records.setdefault(trajectory.episode.sample, trajectory)
        self._update(trajectory.episode.sample)

    def add_damaged(self, record: DamagedRecord) -> None:
        """Add a sample whose record can't be read, as a failed one."""
        failed = FailedSample(str(record.episode), Boundary.STORE, "DamagedRecord", record.why)
        self._damaged[record.episode.sample] = failed
        self._update(record.episode.sample)

    def missing(self) -> tuple[int, ...]:
        """Return the samples to play next; empty once the group is complete or must stay short."""
        return tuple(self._missing.values())

    def group(self) -> Group:
        """Return the group of the samples that have arrived."""
        chosen = [self._records.get(self._last(slot)) for slot in range(self._wanted)]
        failed = {
            sample: FailedSample.of(record)
            for sample, record in self._records.items()
            if record.failure is not None
        }
        return Group(
            self._group_id,
            self._wanted,
            tuple(each for each in chosen if each is not None and each.failure is None),
            tuple(each for _, each in sorted({**self._damaged, **failed}.items())),
            self._duplicates,
        )

    def _update(self, sample: int) -> None:
        slot = (sample - self._first) % self._wanted
        last = self._last(slot)
        if self._has(last):
            self._missing.pop(slot, None)
        else:
            self._missing[slot] = last

    def _last(self, slot: int) -> int:
        """Return the sample that currently has a place in the group."""
        sample = self._first + slot
        while self._is_replaced(sample):
            sample += self._wanted
        return sample

    def _is_replaced(self, sample: int) -> bool:
        following = sample + self._wanted
        if sample in self._damaged:
            return self._has(following)
        record = self._records.get(sample)
        if record is None or record.failure is None:
            return False
        found = replacement(
            record.episode,
            record.failure,
            wanted=self._wanted,
            refills=self._refills,
            first=self._first,
        )
        return found is not None or self._has(following)

    def _has(self, sample: int) -> bool:
        return sample in self._records or sample in self._damaged
