"""Divide the tasks of a job among its workers. All samples of a task stay together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Shard:
    """Worker `index` of `count`."""

    index: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise ValueError(f"no worker {self.index} of {self.count}")

    def tasks(self, all_tasks: Sequence[T]) -> tuple[T, ...]:
        """Return this worker's tasks in order: every `count`-th, from `index` on."""
        return tuple(all_tasks[self.index :: self.count])

    def parallelism(self, of_job: int) -> int:
        """Return how many episodes this worker runs at a time when the job runs `of_job`.

        At least one, because no other worker has its tasks. A job with more workers than
        parallelism runs as many episodes as it has workers.
        """
        return max(1, of_job // self.count + (self.index < of_job % self.count))


WHOLE = Shard()
"""The whole job."""
