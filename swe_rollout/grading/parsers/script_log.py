"""Parse logs of Ruby's and PHP's test runners: minitest, test-unit, RSpec, Cucumber, PHPUnit."""

from __future__ import annotations

import re
from collections.abc import Iterator

from swe_rollout.grading.parsers.base import Result
from swe_rollout.grading.parsers.text import (
    Headings,
    claim,
    depth,
    each_line,
    lines,
    words,
    worst_wins,
)
from swe_rollout.types.verdict import TestStatus

_UNIT = words(passed=".", failed="F E", skipped="O P")
_OUTCOME = re.compile(r":\s++(\.|[EFOP]\b)")
_FAILED = re.compile(r"\(FAILED - \d{1,9}\)\Z")
_SECTIONS = ("Pending:", "Failures:", "Failed examples:", "Finished in ")
_CUCUMBER = re.compile(r"\.+(F?)")


minitest = each_line(
    "Read `TestThing#test_x = 0.00 s = .`; a full stop at a name's end is not part of it.",
    r"(?P<name>.*) = (?:(?! = ).)* s = (?P<word>[.FES])\s*\Z",
    words(passed=".", failed="F", error="E", skipped="S"),
    named=lambda name: name.removesuffix("."),
)
rspec_lines = each_line(
    "Read `name - passed`, which official rows make of `rspec --format json`.",
    r"(?P<name>.*) - (?P<word>passed|failed|pending)\s*\Z",
    words(passed="passed", failed="failed", skipped="pending"),
)


@worst_wins
def ruby_unit(log: str) -> Iterator[Result]:
    """Read test-unit's `test_x:  .: (0.001)`."""
    for raw in lines(log):
        line = raw.strip().removeprefix("test: ")
        outcomes = list(_OUTCOME.finditer(line))
        if outcomes:
            last = outcomes[-1]
            yield from claim(line[: last.start()], last[1], _UNIT)


@worst_wins
def rspec(log: str) -> Iterator[Result]:
    """Read `rspec --format documentation` as `Thing > method > does it`."""
    groups = Headings()
    before = ""
    for line in lines(log):
        if line.startswith(_SECTIONS):
            break
        if not line.strip():
            continue
        # A line is an example unless the next one is deeper.
        if before and depth(line) > depth(before):
            groups.enter(before)
        else:
            yield from _example(groups, before)
        before = line
    yield from _example(groups, before)


def _example(groups: Headings, line: str) -> Iterator[Result]:
    groups.leave(depth(line))
    text = line.strip()
    if not groups.stack or not text:
        return
    name, found, _ = text.partition(" (PENDING: ")
    if found:
        yield Result(groups.path(name), TestStatus.SKIPPED)
    elif failed := _FAILED.search(text[-24:]):
        yield Result(groups.path(text[: -len(failed[0])].rstrip()), TestStatus.FAILED)
    else:
        yield Result(groups.path(text), TestStatus.PASSED)


@worst_wins
def cucumber(log: str) -> Iterator[Result]:
    """Read `file.feature:6  Scenario: name ...F`, with a letter for each step."""
    for raw in lines(log):
        name, found, steps = raw.strip().rpartition(" .")
        if found and (match := _CUCUMBER.match(f".{steps}")) and name.strip():
            status = TestStatus.FAILED if match[1] else TestStatus.PASSED
            yield Result(name.strip(), status)


_PHPUNIT = words(passed="✔", failed="✘ ☢", skipped="↩ ∅")


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
            yield from claim(f"{suite} > {name}", text[:1], _PHPUNIT)
