"""Parse logs of PHPUnit's `--testdox`."""

from __future__ import annotations

from collections.abc import Iterator

from swe_rollout.grading.parsers.base import Result
from swe_rollout.grading.parsers.text import claim, lines, worst_wins
from swe_rollout.types.verdict import TestStatus

_MARKS = {
    "✔": TestStatus.PASSED,
    "✘": TestStatus.FAILED,
    "↩": TestStatus.SKIPPED,
    "∅": TestStatus.SKIPPED,
    "☢": TestStatus.FAILED,
}


@worst_wins
def phpunit(log: str) -> Iterator[Result]:
    """Read `✔ name` below a heading such as `Suite (SuiteTest)`, as `Suite > name`."""
    suite = None
    for line in lines(log):
        text = line.strip()
        if line.endswith(")") and (line[0].isalnum() or line[0] == "_"):
            head, found, place = line[:-1].rpartition(" (")
            if found and place and len(head) > 1:
                suite = head
        elif name := text[1:].strip():
            yield from claim(f"{suite} > {name}", text[:1], _MARKS)
