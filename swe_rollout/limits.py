"""What an episode may use up: turns, tokens, seconds; and the clock that measures them."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


class CutTurns(StrEnum):
    """What becomes of a turn that used up `max_new_tokens`. Nothing in it is ever run."""

    END = "end"
    """It ends the episode (`token_limit`)."""
    ANSWER = "answer"
    """It is closed by the harness, answered with an error, and the episode goes on."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one episode. Reaching one ends the episode with a stop reason: data, no error."""

    turns: int = 50
    """Generations at most (`turn_limit`)."""
    context_tokens: int = 32768
    """Prompt and completion together, at most (`context_full`)."""
    max_new_tokens: int = 4096
    """Tokens of one generation at most."""
    cut_turns: CutTurns = CutTurns.END
    """What becomes of a generation that reaches it."""
    episode_seconds: float = 1800.0
    """From the first turn to the end of the last one (`time_limit`)."""
    tool_seconds: float = 120.0
    """One tool call; the command is killed in the sandbox and the policy is told."""
    tool_output_bytes: int = 16384
    """Bytes of one tool result that the policy sees; the middle is cut and marked."""
    format_errors: int = 3
    """Turns in a row whose calls all failed to parse (`format_errors`)."""
    repeated_turns: int | None = None
    """Turns in a row with identical calls (`repeated`); none: not checked."""


class Deadline:
    """A monotonic deadline whose clock stands still while a service that is needed is away."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self._stops = 0
        self._stopped_at = 0.0
        self._timeout: asyncio.Timeout | None = None

    @property
    def left_s(self) -> float:
        """Seconds left; never negative."""
        return max(0.0, self._end - self._now())

    @property
    def passed(self) -> bool:
        """Whether the time is over."""
        return self._now() >= self._end

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """The clock stands still: what is waited for is not the episode's to lose. May nest."""
        if not self._stops:
            self._stopped_at = time.monotonic()
            self._follow(None)
        self._stops += 1
        try:
            yield
        finally:
            self._stops -= 1
            if not self._stops:
                self.extend(time.monotonic() - self._stopped_at)

    def extend(self, seconds: float) -> None:
        """Give back time that was not the episode's to lose."""
        self._end += seconds
        if not self._stops:
            self._follow(self.left_s)

    @asynccontextmanager
    async def enforced(self) -> AsyncIterator[asyncio.Timeout]:
        """Cancel what is inside when the time is over, as `asyncio.timeout` does.

        Raises TimeoutError; the Timeout tells by `expired` whether it was this one's.
        """
        async with asyncio.timeout(None if self._stops else self.left_s) as timeout:
            self._timeout = timeout
            try:
                yield timeout
            finally:
                self._timeout = None

    def _now(self) -> float:
        return self._stopped_at if self._stops else time.monotonic()

    def _follow(self, left_s: float | None) -> None:
        if self._timeout is not None and not self._timeout.expired():
            when = None if left_s is None else asyncio.get_running_loop().time() + left_s
            self._timeout.reschedule(when)
