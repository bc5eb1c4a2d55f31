"""Parse logs of `python -m unittest -v` and runners that print as it does."""

from __future__ import annotations

import re
from collections.abc import Iterator

from swe_rollout.grading.parsers.base import Result
from swe_rollout.grading.parsers.text import lines, worst_wins
from swe_rollout.types.verdict import TestStatus

_NAME = re.compile(r"(\w+) \(([\w.<>]+)\)")
_ENDINGS = (
    ("ok", TestStatus.PASSED),
    ("FAIL", TestStatus.FAILED),
    ("ERROR", TestStatus.ERROR),
    ("expected failure", TestStatus.XFAIL),
    ("unexpected success", TestStatus.FAILED),
)
_HEADINGS = (("FAIL: ", TestStatus.FAILED), ("ERROR: ", TestStatus.ERROR))


@worst_wins
def unittest(log: str) -> Iterator[Result]:
    """Read `test_x (module.Class.test_x) ... ok` as `module.Class.test_x`, in old logs as well.

    A docstring's first line or the test's own output may stand before the status.
    """
    pending = ""
    for raw in lines(log):
        line = raw.strip()
        if heading := next((h for h in _HEADINGS if line.startswith(h[0])), None):
            if test := _id(line.removeprefix(heading[0])):
                yield Result(test, heading[1])
            continue
        pending = _id(line) or pending
        status = _ending(line) if pending else None
        if status is not None:
            yield Result(pending, status)
            pending = ""


def _id(line: str) -> str:
    if (match := _NAME.match(line)) is None:
        return ""
    name, place = match.groups()
    return place if place.rpartition(".")[2] == name else f"{place}.{name}"


def _ending(line: str) -> TestStatus | None:
    """Read the status at a line's end; a line of its own may be only that."""
    last = line.rpartition(" ... ")[2]
    if last.startswith("skipped ") or last == "skipped":
        return TestStatus.SKIPPED
    return next((status for word, status in _ENDINGS if last == word), None)
