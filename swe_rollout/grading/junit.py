"""Read the JUnit report that pytest writes beside its log. Pure.

It goes to an unpredictable path outside the repository, so a log printed by anything but pytest has
no report that agrees with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final
from xml.etree import ElementTree as ET

from swe_rollout.types.verdict import TestStatus

MAX_BYTES: Final = 64 << 20
_PYTEST: Final = re.compile(
    r"^([ \t]*+(?:\w+=\S*+[ \t]++)*+(?:\S*/)?"
    r"(?:python[\d.]*(?:[ \t]+-[a-zA-Z]\b)*?[ \t]+-m[ \t]+pytest|pytest|py\.test))(?=\s|$)",
    re.MULTILINE,
)
_HEADING: Final = re.compile(
    r"^(?:_{3,} (?P<pytest>.+?) _{3,}|(?:FAIL|ERROR): (?P<unittest>.+))$", re.MULTILINE
)
_KINDS: Final = {
    "failure": TestStatus.FAILED,
    "error": TestStatus.ERROR,
    "skipped": TestStatus.SKIPPED,
}


@dataclass(frozen=True, slots=True)
class Case:
    """One test in the report."""

    status: TestStatus
    """The status of the test; an expected failure counts as skipped."""
    text: str = ""
    """The message and text of its failure."""


def with_report(commands: str, path: str) -> str | None:
    """Return commands that write pytest's report to `path`; None unless they run pytest once."""
    if "junit" in commands or len(_PYTEST.findall(commands)) != 1:
        return None
    return _PYTEST.sub(lambda match: f"{match[1]} --junitxml={path}", commands)


def read_report(data: bytes) -> Mapping[str, Case]:
    """Read a report: cases by `key_of` their ids. Empty when the data is no report."""
    if not data or b"<!DOCTYPE" in data or b"<!ENTITY" in data:
        return {}
    try:
        cases = ET.fromstring(data).iter("testcase")  # noqa: S314 (no entities, bounded)
    except ET.ParseError:
        return {}
    found: dict[str, Case] = {}
    for case in cases:
        key = f"{case.get('classname')}::{case.get('name')}"
        made = _case(case)
        if key not in found or made.status is not TestStatus.PASSED:
            found[key] = made
    return found


def _case(case: ET.Element) -> Case:
    for child in case:
        if status := _KINDS.get(child.tag):
            return Case(status, f"{child.get('message') or ''}\n{child.text or ''}")
    return Case(TestStatus.PASSED)


def key_of(test: str) -> str:
    """Return the key of a test id of pytest: `a/b.py::C::d[e]` is `a.b.C::d[e]`."""
    plain, bracket, parameters = test.partition("[")
    path, *names = plain.split("::")
    *classes, name = names or [""]
    place = ".".join([path.removesuffix(".py").replace("/", "."), *classes])
    return f"{place}::{name}{bracket}{parameters}"


def disagreements(
    statuses: Mapping[str, TestStatus], report: Mapping[str, Case], tests: Iterable[str]
) -> tuple[str, ...]:
    """Return the tests that pass in the log but not in the report."""
    return tuple(
        test
        for test in tests
        if statuses.get(test) is TestStatus.PASSED
        and report.get(key_of(test), _MISSING).status is not TestStatus.PASSED
    )


_MISSING: Final = Case(TestStatus.MISSING)


def failure_texts(log: str, report: Mapping[str, Case], tests: Iterable[str]) -> dict[str, str]:
    """Return the text about each test's failure, from the report or else from the log."""
    sections = {} if report else _sections(log)
    found = {}
    for test in tests:
        if (case := report.get(key_of(test))) is not None:
            found[test] = case.text
        else:
            rest = test.partition("::")[2].replace("::", ".")
            names = (test, rest, rest.rpartition(".")[2])
            found[test] = next((sections[name] for name in names if name in sections), "")
    return found


def _sections(log: str) -> dict[str, str]:
    """Split a log at the headings of its failures."""
    headings = list(_HEADING.finditer(log))
    found: dict[str, str] = {}
    for heading, following in zip_longest(headings, headings[1:]):
        end = len(log) if following is None else following.start()
        name = heading["pytest"] or heading["unittest"]
        found[name] = found.get(name, "") + log[heading.end() : end]
    return found
