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


def snippet(
    data: bytes, at: int, size: int, *, around: int = 4, most: int = 40, whole: bool = False
) -> str:
    """Show the numbered lines of a span, with a few lines around it and `most` in all.

    Only these lines are read, as a file may have millions. With `whole`, long ones are not cut.
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
    shown = "\n".join(numbered(lines, first, whole=whole))
    return f"lines {first} to {first + len(lines) - 1} of {total} now:\n{shown}"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A text that a file must hold exactly once, as a face names it."""

    text: bytes
    name: str
    """The name of the call's argument."""
    advice: str = ""
    """What the policy may do beside adding context if the text occurs more than once."""

    def place_in(self, data: bytes, path: str, line: int | None = None) -> int:
        """Return where it occurs, or where it begins in `line`, counted from 1.

        Raises ToolError, with the lines, unless it does so exactly once.
        """
        start, end, where = 0, len(data), f"in {path}"
        if line is not None:
            lines, where = lines_of(data), f"in line {line} of {path}"
            if not 1 <= line <= len(lines):
                raise ToolError(f"{path} has no line {line}")
            start = sum(map(len, lines[: line - 1]))
            # The match starts in this line but may extend into the next ones.
            end = start + len(lines[line - 1]) + len(self.text) - 1
        found = list(islice(_matches(data, self.text, start, end), MATCHES_TOLD + 1))
        if not found:
            raise ToolError(f"{self.name} does not occur {where}{self._hint(data)}")
        if len(found) == 1:
            return found[0]
        numbers = dict.fromkeys(line_of(data, each) for each in found[:MATCHES_TOLD])
        told = ", ".join(map(str, numbers)) + (" and more" if len(found) > MATCHES_TOLD else "")
        where = f"in {path}, at lines {told}" if len(numbers) > 1 else f"in line {told} of {path}"
        advice = f"add context to make it unique{self.advice}"
        raise ToolError(f"{self.name} occurs more than once {where}; {advice}")

    def _hint(self, data: bytes) -> str:
        """Return what may be wrong with a text that does not occur."""
        if b"\r\n" in data and self.text.replace(b"\n", b"\r\n") in data:
            return f"; the file's lines end in \\r\\n, and {self.name}'s do not"
        longest = max((line.strip() for line in self.text.split(b"\n")), key=len)
        at = data.find(longest) if longest else -1
        told = "holds one of its lines: compare whitespace and line ends"
        return f"; line {line_of(data, at)} {told}" if at >= 0 else ""


def _matches(data: bytes, old: bytes, start: int, end: int) -> Iterator[int]:
    at = data.find(old, start, end)
    while at >= 0:
        yield at
        at = data.find(old, at + 1, end)
