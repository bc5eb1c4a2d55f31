"""Stop the clocks of the episodes that wait for a sandbox while no stream reaches it.

The network, the API server or the node is why there is none, so that is not the episode's time.
Used by `client`; `reconnect` says when there is no stream.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from swe_rollout.types.deadline import Deadline

MOST_S: Final = 600.0
"""For which one sandbox may stop clocks in all: commands can disturb streams, and must not gain
time without end."""


class OutageClocks:
    """The clocks of those who wait for one sandbox."""

    def __init__(self) -> None:
        self._waiting: dict[ExitStack, Deadline] = {}
        self._since: float | None = None
        self._left_s = MOST_S

    @contextmanager
    def waiting(self, clock: Deadline | None) -> Iterator[None]:
        """Stop a clock inside the block for as long as there is no stream."""
        if clock is None:
            yield
            return
        with ExitStack() as stopped:
            self._waiting[stopped] = clock
            if self._since is not None:
                stopped.enter_context(clock.paused())
            try:
                yield
            finally:
                del self._waiting[stopped]

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop all clocks inside the block: there is no stream."""
        if self._left_s <= 0:
            yield
            return
        self._since = time.monotonic()
        for stopped, clock in self._waiting.items():
            stopped.enter_context(clock.paused())
        try:
            yield
        finally:
            self._left_s -= time.monotonic() - self._since
            self._since = None
            for stopped in self._waiting:
                stopped.close()
