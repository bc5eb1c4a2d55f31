"""Helpers of log parsers: lines without terminal codes, sticky failures, nested headings.

Everything here runs in time linear in the log, even if the log is one huge line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import wraps

from swe_rollout.grading.parsers.base import Result
from swe_rollout.types.verdict import TestStatus

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*+[ -/]*+[@-~]|[@-Z\\-_])")
"""Terminal codes: colours, cursor movements."""
_CONTROL = dict.fromkeys([*range(9), *range(11, 32), 127])
_TIMING = re.compile(r"[(\[] ?[\d.]{1,12} ?m?s ?[)\]]\Z")
_TIMING_CHARS = 40
"""An upper bound on the length of a timing."""
_RANK = {
    TestStatus.SKIPPED: 0,
    TestStatus.XFAIL: 1,
    TestStatus.PASSED: 2,
    TestStatus.FAILED: 3,
    TestStatus.ERROR: 4,
}
_MOST_LEVELS = 100
"""How deep headings may nest; deeper ones are ignored."""


def lines(log: str) -> list[str]:
    """Split a log into lines, without terminal codes and control characters except tabs."""
    plain = _ESCAPE.sub("", log) if "\x1b" in log else log
    return plain.translate(_CONTROL).split("\n")


def worst_wins(
    parse: Callable[[str], Iterable[Result]],
) -> Callable[[str], Iterator[Result]]:
    """Make the worst claim about a test its last one: a later pass never hides a failure.

    A skip is the weakest claim, because suites skip one of several tests with the same name. All
    claims are still yielded, in order, for callers that look for contradictions.
    """

    @wraps(parse)
    def read(log: str) -> Iterator[Result]:
        worst: dict[str, TestStatus] = {}
        last: dict[str, TestStatus] = {}
        for result in parse(log):
            yield result
            last[result.test] = result.status
            known = worst.get(result.test)
            if known is None or _RANK[result.status] > _RANK[known]:
                worst[result.test] = result.status
        for test, status in worst.items():
            if last[test] is not status:
                yield Result(test, status)

    return read


def words(**statuses: str) -> dict[str, TestStatus]:
    """Map the words of a runner to statuses: `words(passed="ok PASS", failed="FAIL")`."""
    return {
        word: TestStatus(status.upper())
        for status, all_of in statuses.items()
        for word in all_of.split()
    }


def claim(test: str, word: str, statuses: Mapping[str, TestStatus]) -> Iterator[Result]:
    """Yield the result that a runner's word stands for, if it is known and the test has a name."""
    status = statuses.get(word)
    if status is not None and (name := test.strip()):
        yield Result(name, status)


def untimed(test: str) -> str:
    """Cut a duration in brackets, such as `(12 ms)` or `[1.3 s]`, from the end of a name."""
    name = test.rstrip()
    tail = name[-_TIMING_CHARS:]
    if match := _TIMING.search(tail):
        return name[: len(name) - len(tail) + match.start()].rstrip()
    return name


def each_line(
    about: str,
    pattern: str,
    statuses: Mapping[str, TestStatus],
    *,
    named: Callable[[str], str] = str,
) -> Callable[[str], Iterator[Result]]:
    """Make the parser of a runner that prints one result per line: a row of a family's table.

    `pattern` has the groups `name` and `word`, and matches at the start of a line in linear time;
    `named` strips what does not belong to a name, such as a duration.
    """
    compiled = re.compile(pattern)

    def read(log: str) -> Iterator[Result]:
        for match in filter(None, map(compiled.match, lines(log))):
            yield from claim(named(match["name"]), match["word"], statuses)

    read.__doc__ = about
    return worst_wins(read)


@dataclass(slots=True)
class Headings:
    """The suites that enclose a line, judging by indentation."""

    stack: list[tuple[int, str]] = field(default_factory=list)

    def enter(self, line: str) -> None:
        """Treat a line as a heading; it ends the headings at its depth and below."""
        self.leave(depth(line))
        if len(self.stack) < _MOST_LEVELS:
            self.stack.append((depth(line), line.strip()))

    def leave(self, indentation: int) -> None:
        """End the headings that do not enclose a line with this indentation."""
        while self.stack and self.stack[-1][0] >= indentation:
            self.stack.pop()

    def path(self, name: str, joiner: str = " > ") -> str:
        """Return a test's name, preceded by the names of its suites."""
        return joiner.join([*(heading for _, heading in self.stack), name])


def depth(line: str) -> int:
    """Count the white space at the beginning of a line."""
    return len(line) - len(line.lstrip())
