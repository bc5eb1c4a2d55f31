"""Skeleton: a Python file without the bodies of its longer functions.

Files are read line by line, not parsed, so broken code has a skeleton too and no source is slow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

MIN_BODY_LINES: Final = 4
_FUNCTION: Final = re.compile(r"\s*(?:async\s+)?def\b")
_TOKEN: Final = re.compile(
    r"""\#.*|(?P<triple>\"{3}|'{3})|"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?"""
    r"""|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<goes_on>\\$)|[^#"'(\[{)\]}\\]+|."""
)


@dataclass(frozen=True, slots=True)
class Body:
    """First and last line of a function's body, from 1."""

    first: int
    last: int


def bodies(lines: Sequence[str]) -> Iterator[Body]:
    """Yield the bodies to omit, in order: outermost ones of at least `MIN_BODY_LINES` lines."""
    header_indent: int | None = None
    header_end = last_code = 0
    for line in _logical_lines(lines):
        if header_indent is not None and line.indent <= header_indent:
            yield from _body(header_end + 1, last_code)
            header_indent = None
        if header_indent is None and _FUNCTION.match(lines[line.first - 1]):
            header_indent, header_end = line.indent, line.last
        last_code = line.last
    if header_indent is not None:
        yield from _body(header_end + 1, last_code)


def _body(first: int, last: int) -> Iterator[Body]:
    if last - first + 1 >= MIN_BODY_LINES:
        yield Body(first, last)


@dataclass(frozen=True, slots=True)
class _LogicalLine:
    first: int
    last: int
    indent: int


def _logical_lines(lines: Sequence[str]) -> Iterator[_LogicalLine]:
    """Yield logical lines of code, which brackets, strings and backslashes may join."""
    state, first, indent = _State(), 0, 0
    for number, line in enumerate(lines, 1):
        text = line.rstrip("\r\n")
        if not first:
            stripped = text.strip()
            if not stripped or stripped.startswith("#"):
                continue
            expanded = text.expandtabs()
            first, indent = number, len(expanded) - len(expanded.lstrip())
        state.read(text)
        if not state.goes_on:
            yield _LogicalLine(first, number, indent)
            first = 0
    if first:
        yield _LogicalLine(first, len(lines), indent)


@dataclass(slots=True)
class _State:
    """The brackets or string that are open at the end of a line."""

    depth: int = 0
    quote: str = ""
    backslash: bool = False

    @property
    def goes_on(self) -> bool:
        return bool(self.depth or self.quote or self.backslash)

    def read(self, text: str) -> None:
        self.backslash = False
        at = 0
        while at < len(text):
            if self.quote:
                at = self._after_quote(text, at)
                continue
            found = _TOKEN.match(text, at)
            if found is None:
                return
            at = found.end()
            match found.lastgroup:
                case "triple":
                    self.quote = found[0]
                case "open":
                    self.depth += 1
                case "close":
                    self.depth = max(0, self.depth - 1)
                case "goes_on":
                    self.backslash = True

    def _after_quote(self, text: str, at: int) -> int:
        end = re.compile(rf"(?:\\.|[^\\])*?{self.quote}", re.DOTALL).match(text, at)
        if end is None:
            return len(text)
        self.quote = ""
        return end.end()
