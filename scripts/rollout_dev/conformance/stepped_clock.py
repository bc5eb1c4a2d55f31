"""A process whose wall clock jumps while it runs, as an NTP step or a resumed machine moves it.

Debian's libfaketime reads the offset from a file at each reading of the clock. The monotonic clock
is not affected, like the kernel's. Run as a module, it is `swe-rollout` with such a clock.
"""

from __future__ import annotations

import platform
import random
import select
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from rollout_dev.bench.common import repeatedly

LIBRARY: Final = Path(f"/usr/lib/{platform.machine()}-linux-gnu/faketime/libfaketime.so.1")
INSTALL: Final = "apt-get install libfaketime"
MODULE: Final = "rollout_dev.conformance.stepped_clock"
_JUMPS_S: Final = (-86_400, -3_600, 3_600, 86_400)
_SPREAD_S: Final = 600
LEAST_S: Final = min(map(abs, _JUMPS_S)) - _SPREAD_S
"""The least by which the clock is off after a jump."""


class SteppedClock:
    """The wall clock of processes: off by an hour or a day, in either direction, at random."""

    def __init__(self, file: Path, rng: random.Random, every_s: float) -> None:
        """Jump every `every_s` seconds on average."""
        self.jumps = 0
        self._file = file
        self._rng = rng
        self._every_s = every_s
        self._offset_s = 0
        self._set(0)

    def variables(self) -> Mapping[str, str]:
        """Return the environment variables for such a process."""
        return {
            "LD_PRELOAD": str(LIBRARY),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }

    def jumping(self) -> AbstractContextManager[None]:
        """Let the clock jump while the block runs."""
        return repeatedly(self._jump, lambda: self._rng.uniform(0.0, 2 * self._every_s))

    def _jump(self) -> None:
        others = [each for each in _JUMPS_S if abs(each - self._offset_s) > _SPREAD_S]
        spread_s = self._rng.randint(-_SPREAD_S, _SPREAD_S)
        self._set(self._rng.choice(others) + spread_s)
        self.jumps += 1

    def _set(self, offset_s: int) -> None:
        """Replace the file atomically: a reader sees one offset or the other."""
        self._offset_s = offset_s
        staged = self._file.with_suffix(".staged")
        staged.write_text(f"{offset_s:+d}\n")
        staged.replace(self._file)


def _sleep(seconds: float) -> None:
    """Sleep like `time.sleep`, whose call (until a monotonic moment) libfaketime rejects."""
    select.select([], [], [], seconds)


if __name__ == "__main__":
    from swe_rollout.cli.main import main

    vars(time)["sleep"] = _sleep
    main()
