"""Parse logs of Maven, Gradle and Ant."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator

from swe_rollout.grading.parsers.base import Result
from swe_rollout.grading.parsers.text import claim, each_line, lines, words, worst_wins
from swe_rollout.types.verdict import TestStatus

_BUILDS = words(passed="SUCCESS", failed="FAILURE")
_GRADLE = words(passed="PASSED", failed="FAILED", skipped="SKIPPED")
_COUNTS = re.compile(
    r"Tests run: (\d{1,9}), Failures: (\d{1,9}), Errors: (\d{1,9}), Skipped: (\d{1,9})"
)
_BAD = words(failed="FAILURE!", error="ERROR!")
_OLD_METHOD = re.compile(r"(\w+)\(([\w.$]+)\)\Z")


@worst_wins
def maven(log: str) -> Iterator[Result]:
    """Read one build for each test: `-Dtest=X` in the traced command, then `BUILD SUCCESS`.

    The trace and the builds' own output may be mixed, so the n-th result is the n-th test's.
    """
    tests: deque[str] = deque()
    early: deque[str] = deque()
    for raw in lines(log):
        line = raw.strip()
        *_, after = line.rpartition("-Dtest=")
        if "-Dtest=" in line and after and not after[0].isspace():
            tests.append(after.split(maxsplit=1)[0])
        head, _, word = line.rpartition(" ")
        if word in _BUILDS and head.endswith("BUILD"):
            if tests:
                yield from claim(tests.popleft(), word, _BUILDS)
            else:
                early.append(word)
    while tests and early:
        yield from claim(tests.popleft(), early.popleft(), _BUILDS)


@worst_wins
def surefire(log: str) -> Iterator[Result]:
    """Read Surefire's line for each class, and `Class#method` for what failed in it."""
    running = ""
    for raw in lines(log):
        line = raw.strip().removeprefix("[INFO]").removeprefix("[ERROR]").lstrip()
        if counts := _COUNTS.search(line):
            name = _class(line[counts.end() :], running)
            status = _status([int(number) for number in counts.groups()])
            if name:
                yield Result(name, status)
        elif line.startswith("Running "):
            running = line.removeprefix("Running ").strip()
        elif "<<< " in line:
            shown, _, word = line.rpartition("<<< ")
            if word in _BAD and (test := _method(shown)):
                yield Result(test, _BAD[word])


def _class(rest: str, running: str) -> str:
    """Return the class of a line of counts; empty for the total at the end.

    New versions name it after the time: ` … Time elapsed: 0.1 s -- in com.example.ThingTest`.
    """
    if "Time elapsed" not in rest:
        return ""
    name = rest.rpartition(" in ")[2] if " in " in rest else running
    return "" if " " in name else name


def _status(counts: list[int]) -> TestStatus:
    run, failures, errors, skipped = counts
    if errors:
        return TestStatus.ERROR
    if failures:
        return TestStatus.FAILED
    return TestStatus.SKIPPED if skipped >= run else TestStatus.PASSED


def _method(shown: str) -> str:
    """Return `Class#method`; empty when it is the line of a class."""
    shown = shown.partition("Time elapsed")[0].rstrip(" -")
    if old := _OLD_METHOD.match(shown):
        return f"{old[2]}#{old[1]}"
    name, dot, method = shown.rpartition(".")
    return f"{name}#{method}" if dot and " " not in name and method[:1].islower() else ""


@worst_wins
def gradle(log: str) -> Iterator[Result]:
    """Read `Class > method PASSED`; output of others may come between name and status."""
    pending = ""
    for raw in lines(log):
        line = raw.strip()
        name, _, word = line.rpartition(" ")
        if word in _GRADLE and name and not line.startswith(">"):
            yield from claim(name, word, _GRADLE)
            pending = ""
        elif pending and line in _GRADLE:
            yield from claim(pending, line, _GRADLE)
            pending = ""
        else:
            match line.split(maxsplit=3):
                case [_, ">", _] if not line.startswith(">"):
                    pending = line
                case _:
                    pass


ant = each_line(
    "Read `[junit] [PASS] test(Class)`.",
    r"\s*+\[junit\]\s*+\[(?P<word>[A-Z]+)\](?P<name>.+)",
    words(passed="PASS", failed="FAIL ERR", skipped="SKIP"),
)
