"""Parse logs of C, C++, Go and Rust: CTest, GoogleTest, doctest, Automake, `go test`, Cargo."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from xml.etree.ElementTree import Element

from swe_rollout.grading.parsers.base import Result
from swe_rollout.grading.parsers.reports import documents
from swe_rollout.grading.parsers.text import claim, each_line, lines, untimed, words, worst_wins
from swe_rollout.types.verdict import TestStatus

_CTEST = re.compile(r" *\d{1,9}/\d{1,9} Test +#(\d{1,9}): ")
_CTEST_WORDS = (
    ("Passed", TestStatus.PASSED),
    ("***Failed", TestStatus.FAILED),
    ("***Timeout", TestStatus.FAILED),
    ("***Exception", TestStatus.ERROR),
    ("***Not Run (Disabled)", TestStatus.SKIPPED),
    ("***Not Run", TestStatus.ERROR),
    ("***Skipped", TestStatus.SKIPPED),
)
_GOOGLETEST = words(passed="OK", failed="FAILED", skipped="SKIPPED")


def ctest(log: str) -> Iterator[Result]:
    """Read `1/3 Test #1: name ....   Passed`; of runs of one test, the last counts, as in CTest."""
    for line in lines(log):
        if not (mark := _CTEST.match(line)):
            continue
        name, found, rest = line[mark.end() :].rpartition(" ..")
        outcome = rest.lstrip(". ")
        for word, status in _CTEST_WORDS:
            if found and outcome.startswith(word) and name.strip():
                yield Result(name.strip(), status)
                break


@worst_wins
def googletest(log: str) -> Iterator[Result]:
    """Read `[       OK ] Suite.name (0 ms)`, also behind CTest's `1: `."""
    for raw in lines(log):
        line = raw.strip()
        if not line.endswith(")"):
            continue
        head, _, after = line.rpartition(" ] ") if " ] " in line else line.rpartition("] ")
        word = head.rpartition("[")[2].strip()
        name, found, _ = after.rpartition(" (")
        if found:
            yield from claim(name.partition(", where ")[0], word, _GOOGLETEST)


@worst_wins
def doctest(log: str) -> Iterator[Result]:
    """Read doctest's XML report (`-r=xml -s`): `case > subcase` passes if all its checks do."""
    for root in documents(log, "doctest"):
        for case in root.iter("TestCase"):
            for part in case.iter("SubCase"):
                name = f"{case.get('name')} > {part.get('name')}"
                yield Result(name, _checked(part))


def _checked(part: Element) -> TestStatus:
    passed = all(check.get("success") == "true" for check in part.iter("Expression"))
    return TestStatus.PASSED if passed else TestStatus.FAILED


def _redis_name(shown: str) -> str:
    """Cut the duration, and the file that follows a failed test's name."""
    name = untimed(shown)
    head, found, last = name.rpartition(" in ")
    return head if found and last.endswith(".tcl") and " " not in last else name


automake = each_line(
    "Read `PASS: tests/a`, as `make check` prints it.",
    r"\s*+(?P<word>[A-Z]+): (?P<name>.+)",
    words(passed="PASS", failed="FAIL", error="ERROR", skipped="SKIP", xfail="XFAIL"),
)
redis = each_line(
    "Read `[ok]: name (12 ms)` and `[err]: name in tests/unit/x.tcl`.",
    r"\s*+\[(?P<word>[a-z]+)\]: (?P<name>.+)",
    words(passed="ok", failed="err", error="exception", skipped="skip ignore"),
    named=_redis_name,
)
micropython = each_line(
    "Read `pass  basics/x.py`.",
    r"\s*+(?P<word>pass|FAIL|skip)\s(?P<name>.+)",
    words(passed="pass", failed="FAIL", skipped="skip"),
)
_GO = words(passed="PASS", failed="FAIL", skipped="SKIP")
gotest = each_line(
    "Read `--- PASS: TestX/sub (0.00s)`; names are without their packages.",
    r"\s*+--- (?P<word>PASS|FAIL|SKIP): (?=.*\)\s*\Z)(?P<name>.*) \(",
    _GO,
)
cargo = each_line(
    "Read `test module::name ... ok`; names with spaces are documentation's, and left out.",
    r"\s*+test \s*+(?P<name>\S++)\s++\.\.\.\s++(?P<word>ignored,?|ok|FAILED)(?:(?<=,)\s|\s*+\Z)",
    words(passed="ok", failed="FAILED", skipped="ignored ignored,"),
)


@worst_wins
def gotest_json(log: str) -> Iterator[Result]:
    """Read the events of `go test -json`: `package.TestX/sub`."""
    for line in lines(log):
        if not (line.startswith("{") and '"Test"' in line):
            continue
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        match event:
            case {"Action": str(action), "Package": str(package), "Test": str(test)}:
                yield from claim(f"{package}.{test}", action.upper(), _GO)
            case _:
                pass
