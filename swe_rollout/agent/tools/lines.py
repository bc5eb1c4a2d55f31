"""Number, page and show the lines of files and of texts of any size, as editors do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from swe_rollout.agent.tools.base import ToolError, readable

MATCHES_TOLD: Final = 20
MAX_LINE_BYTES: Final = 2000
_NOTE_BYTES: Final = 240
"""Bytes reserved for a page's note on the remaining lines."""


@dataclass(frozen=True, slots=True)
class Page:
    """The lines that fit, and the number of lines that did not."""

    lines: tuple[str, ...]
    left: int

    @property
    def text(self) -> str:
        """The lines as one text."""
        return "\n".join(self.lines)


def page(lines: Iterable[str], limit: int) -> Page:
    """Return as many whole lines as fit into `limit` bytes with a note on the rest.

    The first line is always included.
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
    """Encode an argument for a file. Raises ToolError for a lone surrogate."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ToolError(f"{name} holds half a surrogate pair at character {error.start}") from error


def lines_of(data: bytes) -> list[bytes]:
    """Split into lines, with their ends; only a newline ends a line.

    Other characters that `splitlines` treats as line ends are ordinary text in source code.
    """
    lines = data.split(b"\n")
    ended = [line + b"\n" for line in lines[:-1]]
    return [*ended, lines[-1]] if lines[-1] else ended


def line_of(data: bytes, at: int) -> int:
    """Return the number, from 1, of the line that contains the byte `at`."""
    return data.count(b"\n", 0, at) + 1


def shown_line(line: bytes) -> str:
    """Decode a line without its end; a long one is cut, with a note that says so."""
    line = line.removesuffix(b"\n")
    if len(line) <= MAX_LINE_BYTES:
        return readable(line)
    # The cut may split a character; the rest of it is dropped.
    kept = line[:MAX_LINE_BYTES].decode(errors="ignore").encode()
    return f"{readable(kept)} [... line cut after {len(kept)} bytes]"


def numbered(lines: Sequence[bytes], first: int, *, whole: bool = False) -> list[str]:
    """Number lines from `first` on; with `whole`, long lines are not cut."""
    shown = (readable(each.removesuffix(b"\n")) if whole else shown_line(each) for each in lines)
    return [f"{number:6}\t{each}" for number, each in enumerate(shown, first)]


def snippet(data: bytes, at: int, size: int, *, around: int = 4, most: int = 40) -> str:
    """Show the numbered lines of a span, with a few lines around it and `most` in all.

    Only these lines are read, as a file may have millions.
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
    first = line_of(data, start)
    total = data.count(b"\n") + (not data.endswith(b"\n"))
    shown = "\n".join(numbered(lines, first))
    return f"lines {first} to {first + len(lines) - 1} of {total} now:\n{shown}"


def only_match(data: bytes, old: bytes, path: str) -> int:
    """Return where `old` occurs. Raises ToolError, with the lines, unless it does exactly once."""
    if not old:
        raise ToolError("old_str is empty; use insert to add text")
    found = list(islice(_matches(data, old), MATCHES_TOLD + 1))
    if not found:
        crlf = b"\r\n" in data and data.find(old.replace(b"\n", b"\r\n")) >= 0
        hint = "; the file's lines end in \\r\\n, and old_str's do not" if crlf else ""
        raise ToolError(f"old_str does not occur in {path}{hint}")
    if len(found) == 1:
        return found[0]
    numbers = dict.fromkeys(line_of(data, each) for each in found[:MATCHES_TOLD])
    told = ", ".join(map(str, numbers)) + (" and more" if len(found) > MATCHES_TOLD else "")
    where = f"{path}, at lines {told}" if len(numbers) > 1 else f"line {told} of {path}"
    raise ToolError(f"old_str occurs more than once in {where}; add context to make it unique")


def _matches(data: bytes, old: bytes) -> Iterator[int]:
    at = data.find(old)
    while at >= 0:
        yield at
        at = data.find(old, at + 1)


def match_in_line(data: bytes, old: bytes, path: str, line: int) -> int:
    """Return where `old` starts in `line`, from 1. Raises ToolError unless it does exactly once."""
    lines = lines_of(data)
    if not old or not 1 <= line <= len(lines):
        raise ToolError(f"old_str is empty, or {path} has no line {line}")
    start = sum(map(len, lines[: line - 1]))
    # The match starts in this line but may extend into the next ones.
    end = start + len(lines[line - 1]) + len(old) - 1
    at = data.find(old, start, end)
    if at < 0 or data.find(old, at + 1, end) >= 0:
        found = "more than once" if at >= 0 else "not"
        raise ToolError(f"old_str begins {found} in line {line} of {path}")
    return at
