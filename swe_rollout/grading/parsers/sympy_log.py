"""Parse logs of sympy's `bin/test -C --verbose`: bare function names, and failures by file."""

from __future__ import annotations

from collections.abc import Iterator

from swe_rollout.grading.parsers.base import Result
from swe_rollout.types.verdict import TestStatus

_ENDINGS = {" E": TestStatus.ERROR, " F": TestStatus.FAILED, " ok": TestStatus.PASSED}


def sympy(log: str) -> Iterator[Result]:
    """Read `test_x ok`, and failures from headings such as `____ path/test_y.py:test_x ____`."""
    lines = log.split("\n")
    for line in lines:
        inner = line.partition(" ")[2].rpartition(" ")[0]
        if ".py:" in inner:
            yield Result(inner, TestStatus.FAILED)
    for raw in lines:
        line = raw.strip()
        if line.startswith("test_"):
            for ending, status in _ENDINGS.items():
                if line.endswith(ending):
                    yield Result(line.split(maxsplit=1)[0], status)
