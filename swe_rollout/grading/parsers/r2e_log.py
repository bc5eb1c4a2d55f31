"""Parse logs of R2E-Gym's tests: pytest's summary, with ids that have lost their files."""

from __future__ import annotations

from collections.abc import Iterator

from swe_rollout.grading.parsers.base import Result
from swe_rollout.grading.parsers.text import lines
from swe_rollout.types.verdict import TestStatus

_SUMMARY = "short test summary info"
_STATUSES = (TestStatus.PASSED, TestStatus.FAILED, TestStatus.ERROR)


def r2e(log: str) -> Iterator[Result]:
    """Read `PASSED r2e_tests/test_1.py::Class::test_x` in the summary as `Class.test_x`.

    The status is the line's first word. The original looks for the words anywhere in the line, so a
    failing `test_PASSED_x` passes there.
    """
    # Only the first summary's text, up to a second heading.
    summary = "\n".join(lines(log)).split(_SUMMARY, 2)[1:2]
    for line in summary[0].split("\n") if summary else ():
        word, _, rest = line.strip().partition(" ")
        if word in _STATUSES and rest:
            yield Result(r2e_id(rest), TestStatus(word))


def r2e_id(test: str) -> str:
    """Return a test's id as R2E-Gym writes it: without file and message, joined by dots.

    Empty for a file that could not be collected.
    """
    return ".".join(test.split("::")[1:]).split(" - ")[0].strip()
