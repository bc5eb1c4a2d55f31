"""Parse test results in JSON, as parsers that run in the sandbox print them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from swe_rollout.grading.parsers.base import Result
from swe_rollout.grading.parsers.text import claim, lines, worst_wins
from swe_rollout.types.verdict import TestStatus

_STATUSES = {
    "PASSED": TestStatus.PASSED,
    "PASS": TestStatus.PASSED,
    "FAILED": TestStatus.FAILED,
    "FAIL": TestStatus.FAILED,
    "ERROR": TestStatus.ERROR,
    "SKIPPED": TestStatus.SKIPPED,
    "SKIP": TestStatus.SKIPPED,
    "XFAIL": TestStatus.XFAIL,
}


@worst_wins
def json_results(log: str) -> Iterator[Result]:
    """Read the last line, an object: `{"tests": [{"name", "status"}]}` or id to status."""
    try:
        whole = json.loads("\n".join(lines(log)).rstrip().rpartition("\n")[2])
    except (ValueError, RecursionError):
        return
    for name, word in _pairs(whole):
        if isinstance(name, str) and isinstance(word, str):
            yield from claim(name, word.upper(), _STATUSES)


def _pairs(whole: object) -> Iterable[tuple[object, object]]:
    match whole:
        case {"tests": list(tests)}:
            return [(t.get("name"), t.get("status")) for t in tests if isinstance(t, dict)]
        case dict():
            return whole.items()
        case _:
            return ()
