"""What a log parser is: text in, results in the order they are printed.

The datasets' lists of expected tests are themselves products of text parsers, with truncated ids
and docstring titles, so the parsers here keep the official quirks. The log is untrusted: every
parser takes time linear in its length and ignores what it does not understand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from swe_rollout.verdict import TestStatus

STATUSES = tuple(status for status in TestStatus if status is not TestStatus.MISSING)


@dataclass(frozen=True, slots=True)
class Result:
    """One line's claim about one test. A later claim about the same test replaces it."""

    test: str
    status: TestStatus


Parser = Callable[[str], Iterator[Result]]


def word(line: str, index: int) -> str | None:
    """The word at `index` of a line; none when it has fewer."""
    words = line.split(maxsplit=index + 1)
    return words[index] if len(words) > index else None
