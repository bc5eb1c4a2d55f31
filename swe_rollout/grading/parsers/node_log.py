"""Parse logs of JavaScript's test runners: Jest, Vitest, Mocha, Karma, and TAP."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice

from swe_rollout.grading.parsers.base import Result
from swe_rollout.grading.parsers.text import (
    claim,
    depth,
    each_line,
    lines,
    untimed,
    words,
    worst_wins,
)
from swe_rollout.types.verdict import TestStatus

_KARMA = words(passed="✔", failed="✖")
_MOCHA = words(passed="✓ ✔ √", skipped="-")
_VITEST_TIMING = re.compile(r"\s(?:\d{1,12}\s?m?s?|\[skipped\])\Z")
_TAIL_CHARS = 24
_NUMBERED = re.compile(r"\d{1,9}\) ")
_PASSING = re.compile(r"^[ \t]{0,20}\d{1,9} passing\b")
_REPORT = re.compile(r'^\{\s{0,8}"stats"', re.MULTILINE)
_DEEPEST = 100
"""The most indentation of a line in Mocha's report."""
_MOST_REPORTS = 20
"""A bound on the work: each report may be as long as the log."""


def _vitest_name(shown: str) -> str:
    """Cut the duration; a number at a name's end goes with it, as in the expected lists."""
    name = shown.rstrip()
    tail = name[-_TAIL_CHARS:]
    timing = _VITEST_TIMING.search(tail)
    return name[: len(name) - len(tail) + timing.start()] if timing else name


jest = each_line(
    "Read `✓ name (12 ms)` of `jest --verbose`; names are without their suites.",
    r"\s*+(?P<word>[✓✕○]) (?:(?<=○ )skipped )?(?P<name>.+)",
    words(passed="✓", failed="✕", skipped="○"),
    named=untimed,
)
jest_json = each_line(
    "Read `[PASSED] suite > name`, which official rows make of `jest --json`.",
    r"\s*+\[(?P<word>[A-Z]+)\] (?P<name>.+)",
    words(passed="PASSED", failed="FAILED", skipped="PENDING SKIPPED TODO"),
)
jest_files = each_line(
    "Read `PASS path/of.test.js (5.1 s)`: one result for each file.",
    r"(?P<word>PASS|FAIL) (?P<name>.+)",
    words(passed="PASS", failed="FAIL"),
    named=untimed,
)
vitest = each_line(
    "Read `✓ file > suite > name 12ms` of `vitest --reporter=verbose`.",
    r"\s*+(?P<word>[✓×↓]) (?P<name>.+)",
    words(passed="✓", failed="×", skipped="↓"),
    named=_vitest_name,
)
# A directive such as `# SKIP` stays in the name, as in the expected lists: a skipped test is then
# not the test that should pass.
tap = each_line(
    "Read the Test Anything Protocol: `ok 1 name`, `not ok 2 name`.",
    r"\s*+(?P<word>ok|not ok) \d{1,12} (?P<name>.+)",
    {"ok": TestStatus.PASSED, "not ok": TestStatus.FAILED},
)


@worst_wins
def mocha(log: str) -> Iterator[Result]:
    """Read Mocha's `spec` report as `suite > suite > name`, up to its summary.

    Each level is indented by two, so lines that tests print rarely pass for suites.
    """
    suites: dict[int, tuple[str, ...]] = {0: ()}
    for line in lines(log):
        text, level = line.strip(), depth(line)
        if _PASSING.match(line):
            return
        if not text or not 1 < level <= _DEEPEST:
            continue
        around = suites.get(level - 2, ())
        mark, _, name = text.partition(" ")
        if mark in _MOCHA and name:
            yield from claim(" > ".join([*around, untimed(name)]), mark, _MOCHA)
        elif numbered := _NUMBERED.match(text):
            name = untimed(text[numbered.end() :])
            yield Result(" > ".join([*around, name]), TestStatus.FAILED)
        else:
            suites[level] = (*around, text)


@worst_wins
def mocha_json(log: str) -> Iterator[Result]:
    """Read the objects that `mocha --reporter json` prints, by `fullTitle`."""
    plain = "\n".join(lines(log))
    decoder = json.JSONDecoder()
    for start in islice(_REPORT.finditer(plain), _MOST_REPORTS):
        try:
            report, _ = decoder.raw_decode(plain, start.start())
        except (ValueError, RecursionError):
            continue
        yield from _mocha_report(report)


def _mocha_report(report: object) -> Iterator[Result]:
    lists = (
        ("passes", TestStatus.PASSED),
        ("pending", TestStatus.SKIPPED),
        ("failures", TestStatus.FAILED),
    )
    for key, status in lists:
        tests = report.get(key) if isinstance(report, dict) else None
        for test in tests if isinstance(tests, list) else ():
            match test:
                case {"fullTitle": str(title)} if title.strip():
                    yield Result(title.strip(), status)
                case _:
                    pass


@worst_wins
def karma(log: str) -> Iterator[Result]:
    """Read karma-mocha's report of `✔ name` below its suites, from the browser's start.

    A suite that follows another one without deeper indentation keeps the first one's name, as in
    the expected lists.
    """
    suites: list[str] = []
    deepest = -1
    started = False
    for line in lines(log):
        if line.startswith("SUMMARY:"):
            return
        if "Starting browser" in line:
            started = True
            continue
        indentation = depth(line)
        mark, gap, name = line[indentation : indentation + 1], line[indentation + 1 :][:1], ""
        if not started:
            continue
        if mark in _KARMA and gap.isspace():
            name = line[indentation + 2 :]
            yield from claim(" > ".join([*suites, name]), mark, _KARMA)
        elif indentation > deepest + 1 and indentation > 1:
            deepest = indentation - 1
            suites.append(line.strip())
        elif 1 < indentation <= deepest and suites:
            deepest = indentation - 1
            suites.pop()
