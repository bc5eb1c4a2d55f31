"""Turn the text of a test log into the status of each test, in the order printed.

The datasets' lists of expected tests were themselves made by text parsers, with truncated ids and
docstring titles, so the parsers here keep the official quirks. The log is untrusted: every parser
runs in time linear in its length and ignores what it does not understand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from swe_rollout.errors import GraderError, caught
from swe_rollout.types.verdict import TestStatus

STATUSES = tuple(status for status in TestStatus if status is not TestStatus.MISSING)
MOST_CHARS: Final = 64 << 20
"""The most characters that the ids in one log have together."""


class EndlessIdsError(Exception):
    """Signals a log with longer ids than are read, such as of many tests in one endless suite.

    The name of a suite is printed once, and is part of each id in it.
    """


@dataclass(frozen=True, slots=True)
class Result:
    """One line's claim about one test. A later claim about the same test replaces it."""

    test: str
    status: TestStatus


LogParser = Callable[[str], Iterable[Result] | Mapping[str, str]]
"""Takes the log; returns results, or a mapping of test id to status (`PASSED`, `FAILED`, …)."""


@dataclass(frozen=True, slots=True)
class NamedLogParser:
    """A log parser and the name under which it was requested."""

    name: str
    parse: LogParser

    def read(self, log: str) -> list[Result]:
        """Parse the log. Raises ExtensionFailedError or GraderError when the parser breaks.

        Raises EndlessIdsError, and keeps nothing, if the ids are too long together.
        """
        found: list[Result] = []
        left = MOST_CHARS
        with caught(
            GraderError,
            f"the log parser {self.name}",
            fix="a log parser ignores what it does not understand; run its contract tests "
            "(docs/how-to/extend/log-parsers.md)",
            by=self.parse,
        ):
            parsed = self.parse(log)
            results = _of_mapping(parsed) if isinstance(parsed, Mapping) else parsed
            for result in results:
                found.append(_checked(result))
                left -= len(result.test)
                if left < 0:
                    break
        if left < 0:
            raise EndlessIdsError
        return found


def _of_mapping(statuses: Mapping[str, str]) -> Iterator[Result]:
    for test, status in statuses.items():
        yield Result(test, TestStatus(status))


def _checked(result: object) -> Result:
    if not isinstance(result, Result):
        raise TypeError(f"expected a Result; found a {type(result).__name__}")
    if not isinstance(result.test, str) or result.status not in STATUSES:
        raise ValueError(f"expected a test id and one of {', '.join(STATUSES)}; found {result}")
    return result


def word(line: str, index: int) -> str | None:
    """Return the word at `index` of a line, or None when the line has fewer words."""
    words = line.split(maxsplit=index + 1)
    return words[index] if len(words) > index else None
