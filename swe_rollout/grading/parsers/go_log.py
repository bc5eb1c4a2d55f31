"""Parse logs of `go test -v`, as text and as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from swe_rollout.grading.parsers.base import Result
from swe_rollout.grading.parsers.text import claim, lines, worst_wins
from swe_rollout.types.verdict import TestStatus

_STATUSES = {
    "PASS": TestStatus.PASSED,
    "FAIL": TestStatus.FAILED,
    "SKIP": TestStatus.SKIPPED,
}
_MARK = re.compile(r"--- (PASS|FAIL|SKIP): ")


@worst_wins
def gotest(log: str) -> Iterator[Result]:
    """Read `--- PASS: TestX/sub (0.00s)`; names are without their packages."""
    for raw in lines(log):
        line = raw.strip()
        if (mark := _MARK.match(line)) and line.endswith(")"):
            name, found, _ = line[mark.end() :].rpartition(" (")
            if found:
                yield from claim(name, mark[1], _STATUSES)


@worst_wins
def gotest_json(log: str) -> Iterator[Result]:
    """Read the events of `go test -json`: `package.TestX/sub`."""
    for line in lines(log):
        if not (line.startswith("{") and '"Test"' in line):
            continue
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        match event:
            case {"Action": str(action), "Package": str(package), "Test": str(test)}:
                yield from claim(f"{package}.{test}", action.upper(), _STATUSES)
            case _:
                pass
