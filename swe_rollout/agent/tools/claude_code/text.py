"""Lines, numbers and pages: how text of any size is shown to the policy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from swe_rollout.agent.tools.base import ToolError, readable

MAX_LINE_BYTES = 2000
_NOTE_BYTES = 240
"""Room kept for what a page says about itself."""


@dataclass(frozen=True, slots=True)
class Page:
    """The lines that fit, and how many did not."""

    lines: tuple[str, ...]
    left: int

    @property
    def text(self) -> str:
        """The lines as one text."""
        return "\n".join(self.lines)


def page(lines: Iterable[str], limit: int) -> Page:
    """Return as many whole lines as `limit` bytes hold together with a note on the rest.

    The first line is there in any case.
    """
    kept: list[str] = []
    room, left = limit - _NOTE_BYTES, 0
    for line in lines:
        room -= len(line.encode(errors="replace")) + 1
        if left or (room < 0 and kept):
            left += 1
        else:
            kept.append(line)
    return Page(tuple(kept), left)


def encoded(text: str, name: str) -> bytes:
    """Encode an argument for a file; ToolError for half a surrogate pair."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ToolError(f"{name} holds half a surrogate pair at character {error.start}") from error


def split_lines(data: bytes) -> list[bytes]:
    r"""Split at `\n` alone and keep it: what `splitlines` splits at is text in source code."""
    lines = data.split(b"\n")
    ended = [line + b"\n" for line in lines[:-1]]
    return [*ended, lines[-1]] if lines[-1] else ended


def shown_line(line: bytes) -> str:
    """Decode a line without its end; a long one is cut, and says so."""
    line = line.removesuffix(b"\n")
    if len(line) <= MAX_LINE_BYTES:
        return readable(line)
    # A character may be cut, and what is left of it is dropped.
    kept = line[:MAX_LINE_BYTES].decode(errors="ignore").encode()
    return f"{readable(kept)} [... line cut after {len(kept)} bytes]"


def numbered(lines: Sequence[bytes], first: int) -> list[str]:
    """Number lines from `first` on."""
    return [f"{number:6}\t{shown_line(line)}" for number, line in enumerate(lines, first)]


def line_at(data: bytes, at: int) -> int:
    """Return the number of the line, from 1, that holds the byte at `at`."""
    return data.count(b"\n", 0, at) + 1


def snippet(data: bytes, at: int, size: int, *, around: int = 4, most: int = 40) -> str:
    """Show the lines of a span and a few around it, at most `most`, and which lines these are.

    Looks at these lines alone: a file may have millions.
    """
    if not data:
        return "it is empty now"
    start = at
    for _ in range(around + 1):
        start = data.rfind(b"\n", 0, start)
        if start < 0:
            break
    start += 1
    end, last_of_span = start, at + max(0, size - 1)
    lines: list[bytes] = []
    behind = -1
    while end < len(data) and len(lines) < most and behind < around:
        following = data.find(b"\n", end) + 1 or len(data)
        lines.append(data[end:following])
        behind += following > last_of_span
        end = following
    first = line_at(data, start)
    total = data.count(b"\n") + (not data.endswith(b"\n"))
    shown = "\n".join(numbered(lines, first))
    return f"lines {first} to {first + len(lines) - 1} of {total} now:\n{shown}"
