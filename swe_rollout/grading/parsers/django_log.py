"""Parse logs of Django's own test runner, whose lines the tests' own output breaks up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from swe_rollout.grading.parsers.base import Result, word
from swe_rollout.types.verdict import TestStatus

_OK = (" ... ok", " ... OK", " ...  OK")
_TITLE = "--version is equivalent to version"
_GLUED = "Applying sites.0002_alter_domain_unique...test_no_migrations"
_TESTING = " ... Testing against Django installed in "
_SERVER_ERROR = " ... Internal Server Error: /"
_CHECKED = " ... System check identified no issues (0 silenced)"


def django(log: str) -> Iterator[Result]:
    """Read `test_x (module.Class) ... ok`; the name may be the docstring's first line instead."""
    lines = log.split("\n")
    pending: str | None = None
    for raw in lines:
        line = raw.strip()
        if _TITLE in line:
            yield Result(_TITLE, TestStatus.PASSED)
        if " ... " in line:
            pending = line.partition(" ... ")[0]
        yield from _line(line)
        # The test passed, but its output came between its name and its status.
        if line.startswith("ok") and pending is not None:
            yield Result(pending, TestStatus.PASSED)
    yield from _interrupted(lines)


def _line(line: str) -> Iterator[Result]:
    for suffix in _OK:
        if line.endswith(suffix):
            # One migration test of django 1.x has its name glued to the line before.
            shown = line.partition("...")[2].strip() if line.startswith(_GLUED) else line
            yield Result(shown.removesuffix(suffix), TestStatus.PASSED)
            break
    if " ... skipped" in line:
        yield Result(line.partition(" ... skipped")[0], TestStatus.SKIPPED)
    yield from _bad(line, " ... FAIL", "FAIL:", TestStatus.FAILED)
    yield from _bad(line, " ... ERROR", "ERROR:", TestStatus.ERROR)


def _bad(line: str, suffix: str, prefix: str, status: TestStatus) -> Iterator[Result]:
    if line.endswith(suffix):
        yield Result(line.partition(suffix)[0], status)
    if line.startswith(prefix) and (test := word(line, 1)):
        yield Result(test, status)


def _interrupted(lines: Sequence[str]) -> Iterator[Result]:
    """Read tests at whose status the runner printed a message, and `ok` on a line of its own."""
    testing: str | None = None
    for line, following in pairwise(lines):
        if testing is None and _TESTING in line:
            testing = line.partition(_TESTING)[0]
        if following != "ok":
            continue
        if testing is not None and line.endswith(" silenced)."):
            yield Result(testing, TestStatus.PASSED)
            testing = None
        name, found, rest = line.partition(_SERVER_ERROR)
        if found and rest.endswith("/"):
            yield Result(name, TestStatus.PASSED)
        if line.endswith(_CHECKED):
            yield Result(line.partition(_CHECKED)[0], TestStatus.PASSED)
