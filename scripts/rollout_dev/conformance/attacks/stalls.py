"""How long the controller's event loop stood still by its own doing, not for want of a core."""

from __future__ import annotations

import asyncio
import time
from typing import Final

CALM_S: Final = 1.0
"""The longest that the controller's event loop may stand still."""
BEAT_S: Final = 0.02
_BLOCKED_S: Final = 5.0
"""A loop that stood still for longer counts as blocked, whatever its process computed."""


class Stalls:
    """The longest time that the loop of `watch` stood still so far.

    A beat that comes late counts for the processor time that this process used meanwhile: on a
    busy machine the rest is time in which others had the core, or the interpreter's lock.
    """

    longest_s = 0.0

    async def watch(self) -> None:
        """Measure until cancelled."""
        while True:
            began, used = time.monotonic(), time.process_time()
            await asyncio.sleep(BEAT_S)
            late_s = time.monotonic() - began - BEAT_S
            own_s = late_s if late_s > _BLOCKED_S else time.process_time() - used
            self.longest_s = max(self.longest_s, min(late_s, own_s))
