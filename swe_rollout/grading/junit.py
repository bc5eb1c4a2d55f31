"""Read the JUnit report that pytest writes beside its log. Pure.

It goes to an unpredictable path outside the repository, so a log printed by anything but pytest has
no report that agrees with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from swe_rollout.grading.parsers.reports import documents
from swe_rollout.types.verdict import TestStatus

MAX_BYTES: Final = 64 << 20
_PYTEST: Final = re.compile(
    r"^([ \t]*+(?:\w+=\S*+[ \t]++)*+(?:\S*/)?"
    r"(?:python[\d.]*(?:[ \t]+-[a-zA-Z]\b)*?[ \t]+-m[ \t]+pytest|pytest|py\.test))(?=\s|$)",
    re.MULTILINE,
)
_PASSED: Final = TestStatus.PASSED
_KINDS: Final = {
    "failure": TestStatus.FAILED,
    "error": TestStatus.ERROR,
    "skipped": TestStatus.SKIPPED,
}


def with_report(commands: str, path: str) -> str | None:
    """Return commands that write pytest's report to `path`; None unless they run pytest once."""
    if "junit" in commands or len(_PYTEST.findall(commands)) != 1:
        return None
    return _PYTEST.sub(lambda match: f"{match[1]} --junitxml={path}", commands)


def without_tracebacks(commands: str) -> str:
    """Return commands whose pytest shows none: it would parse a file again for each failed test."""
    return _PYTEST.sub(r"\1 --tb=no", commands)


def read_report(data: bytes) -> Mapping[str, TestStatus]:
    """Read a report: statuses by `key_of` their ids. Empty when the data is no report.

    An expected failure counts as skipped.
    """
    found: dict[str, TestStatus] = {}
    for root in documents(data.decode(errors="replace"), "testsuites", "testsuite"):
        for case in root.iter("testcase"):
            key = f"{case.get('classname')}::{case.get('name')}"
            status = next((_KINDS[part.tag] for part in case if part.tag in _KINDS), _PASSED)
            if found.get(key, _PASSED) is _PASSED:
                found[key] = status
    return found


def key_of(test: str) -> str:
    """Return the key of a test id of pytest: `a/b.py::C::d[e]` is `a.b.C::d[e]`."""
    plain, bracket, parameters = test.partition("[")
    path, *names = plain.split("::")
    *classes, name = names or [""]
    place = ".".join([path.removesuffix(".py").replace("/", "."), *classes])
    return f"{place}::{name}{bracket}{parameters}"


def disagreements(
    statuses: Mapping[str, TestStatus], report: Mapping[str, TestStatus], tests: Iterable[str]
) -> tuple[str, ...]:
    """Return the tests that pass in the log but not in the report."""
    return tuple(
        test
        for test in tests
        if statuses.get(test) is _PASSED and report.get(key_of(test)) is not _PASSED
    )
