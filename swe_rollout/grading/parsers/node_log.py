"""Parse logs of JavaScript's test runners: Jest, Vitest, Mocha, Karma, and TAP."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import islice

from swe_rollout.grading.parsers.base import Result
from swe_rollout.grading.parsers.text import claim, depth, lines, untimed, words, worst_wins
from swe_rollout.types.verdict import TestStatus

_JEST = words(passed="✓", failed="✕", skipped="○")
_VITEST = words(passed="✓", failed="×", skipped="↓")
_KARMA = words(passed="✔", failed="✖")
_MOCHA = words(passed="✓ ✔ √", skipped="-")
_TAGS = words(passed="[PASSED", failed="[FAILED", skipped="[PENDING [SKIPPED [TODO")
_FILES = words(passed="PASS", failed="FAIL")
_VITEST_TIMING = re.compile(r"\s(?:\d{1,12}\s?m?s?|\[skipped\])\Z")
_TAIL_CHARS = 24
_NUMBERED = re.compile(r"\d{1,9}\) ")
_PASSING = re.compile(r"^[ \t]{0,20}\d{1,9} passing\b")
_TAP = re.compile(r"(ok|not ok) \d{1,12} (.+)", re.DOTALL)
_TAP_WORDS = {"ok": TestStatus.PASSED, "not ok": TestStatus.FAILED}
_REPORT = re.compile(r'^\{\s{0,8}"stats"', re.MULTILINE)
_DEEPEST = 100
"""White space before a line of Mocha's report."""
_MOST_REPORTS = 20
"""Each may be as long as the log."""


@worst_wins
def jest(log: str) -> Iterator[Result]:
    """Read `✓ name (12 ms)` of `jest --verbose`; names are without their suites."""
    for mark, name in _marked(lines(log)):
        is_skipped = mark == "○"
        shown = name.removeprefix("skipped ") if is_skipped else name
        yield from claim(untimed(shown), mark, _JEST)


@worst_wins
def jest_json(log: str) -> Iterator[Result]:
    """Read `[PASSED] suite > name`, which official rows make of `jest --json`."""
    for line in lines(log):
        tag, found, name = line.strip().partition("] ")
        if found:
            yield from claim(name, tag, _TAGS)


@worst_wins
def jest_files(log: str) -> Iterator[Result]:
    """Read `PASS path/of.test.js (5.1 s)`: one result for each file."""
    for line in lines(log):
        word, _, name = line.partition(" ")
        yield from claim(untimed(name), word, _FILES)


@worst_wins
def vitest(log: str) -> Iterator[Result]:
    """Read `✓ file > suite > name 12ms` of `vitest --reporter=verbose`.

    A number at a name's end goes with the duration, as in the expected lists.
    """
    for mark, name in _marked(lines(log)):
        tail = name[-_TAIL_CHARS:]
        timing = _VITEST_TIMING.search(tail)
        shown = name[: len(name) - len(tail) + timing.start()] if timing else name
        yield from claim(shown, mark, _VITEST)


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


@worst_wins
def tap(log: str) -> Iterator[Result]:
    """Read the Test Anything Protocol: `ok 1 name`, `not ok 2 name`.

    A directive such as `# SKIP` stays in the name, as in the expected lists: a test that is skipped
    is not the test that was to pass.
    """
    for line in lines(log):
        if match := _TAP.match(line.strip()):
            yield from claim(match[2], match[1], _TAP_WORDS)


def _marked(texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the mark and the name of lines such as `✓ adds`."""
    for line in texts:
        mark, _, name = line.strip().partition(" ")
        if len(mark) == 1 and name:
            yield mark, name
