"""Count how often a worker was killed in its pod, so that it does not begin again for ever.

Kubernetes restarts a container that was killed in place, and knows no limit to that: a worker that
needs more memory than it has would be killed until its job is deleted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import structlog

from swe_rollout.errors import SweRolloutError

log = structlog.get_logger()

MOST: Final = 5
"""Lives in which no turn becomes durable and no episode is committed."""


class KilledTooOftenError(SweRolloutError):
    """A worker was killed again and again, and got no further in between."""

    exit_code = 5


class Lives:
    """The lives of a worker since it last got further, in a file that outlives them."""

    def __init__(self, file: Path | None) -> None:
        """`file`: on a volume of the pod; none: nothing is counted."""
        self._file = file
        self._count = 0

    def begin(self) -> None:
        """Count one more. Raises KilledTooOftenError where that is too many."""
        count = self._read() + 1
        if count > MOST:
            raise KilledTooOftenError(
                f"the worker was killed {MOST} times and got no further in between",
                why="no turn was written to the store; most of the time it has too little memory",
                fix="raise spec.workers.resources.memory, or lower spec.parallelism",
            )
        self._write(count)
        if count > 1:
            log.info("worker_restarted", lives=count)

    def progressed(self) -> None:
        """Note that a turn is durable: whoever is killed next has all lives again."""
        if self._count:
            self._write(0)

    def _read(self) -> int:
        try:
            return int(self._file.read_text()) if self._file is not None else 0
        except (OSError, ValueError):
            return 0  # the first life, or killed while it wrote

    def _write(self, count: int) -> None:
        self._count = count
        try:
            if self._file is not None:
                self._file.write_text(f"{count}")
        except OSError as error:
            log.warning("lives_not_counted", why=str(error))
