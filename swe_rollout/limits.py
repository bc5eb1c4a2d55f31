"""What an episode may use up: turns, tokens, seconds; and the clock that measures them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import StrEnum


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


@dataclass(slots=True)
class Deadline:
    """A monotonic deadline that can be paused while a service is down."""

    seconds: float
    _end: float = field(init=False)

    def __post_init__(self) -> None:
        self._end = time.monotonic() + self.seconds

    @property
    def left_s(self) -> float:
        """Seconds left; never negative."""
        return max(0.0, self._end - time.monotonic())

    @property
    def passed(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() >= self._end

    def extend(self, seconds: float) -> None:
        """Give back time that was not the episode's to lose."""
        self._end += seconds
