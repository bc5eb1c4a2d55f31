"""Make untrusted text safe to display: show control characters instead of interpreting them.

Model output, sandbox output and dataset rows may contain terminal escapes, NUL bytes and characters
that reorder a line. Used for HTML pages and for terminals.
"""

from __future__ import annotations

import html
import re
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment

_ANSI_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and newline, DEL, C1
    r"\u200e\u200f\u2028-\u202e\u2066-\u2069"  # line and direction marks
    r"\ud800-\udfff\ufffe\uffff]"  # lone surrogates, and what XML forbids
)
_C0_PICTURES = 0x2400
_C0_END = 0x20


def printable(text: str) -> str:
    """Remove colours, and replace every other control character by a visible symbol."""
    return _CONTROL.sub(_picture, _ANSI_COLOUR.sub("", text.replace("\r\n", "\n")))


def one_line(text: str, *, limit: int = 200) -> str:
    """Return `printable` text on one line, cut at `limit` characters."""
    line = " ".join(printable(text[: 4 * limit]).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def escaped(text: str) -> str:
    """Return `printable` text for HTML, in element content and in quoted attributes."""
    return html.escape(printable(text), quote=True)


@cache
def templates(package: str) -> Environment:
    """Return the HTML templates of a package, which show every text as `escaped` does."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - it is slow

    made = Environment(
        loader=PackageLoader(package),
        autoescape=True,
        finalize=lambda value: printable(value) if isinstance(value, str) else value,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    made.filters["one_line"] = one_line
    return made


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    return chr(_C0_PICTURES + code) if code < _C0_END else f"⟨U+{code:04X}⟩"
