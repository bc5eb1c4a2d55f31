"""Parse logs of Python's test runners: pytest and variants, unittest, Django, sympy, R2E-Gym."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from swe_rollout.grading.parsers.base import STATUSES, Result, word
from swe_rollout.grading.parsers.text import lines, worst_wins
from swe_rollout.types.verdict import TestStatus

_SKIP_COUNT = re.compile(r"\[\d+\]")
_COLOUR = re.compile(r"\[\d+m")
_CONTROL = dict.fromkeys(range(1, 32))
_VERBOSE = re.compile(rf"(\S+)\s+({'|'.join(STATUSES)})")


def pytest(log: str) -> Iterator[Result]:
    """Read `PASSED path::test`; an id ends at its first space, as in the expected lists."""
    for line in log.split("\n"):
        if line.startswith(STATUSES):
            is_failed = line.startswith(TestStatus.FAILED)
            shown = line.replace(" - ", " ") if is_failed else line
            status, *words = shown.split(maxsplit=2)
            if not _counts_skips(status, words):
                yield from _result(status, words[:1])


def pytest_options(log: str) -> Iterator[Result]:
    """Read as `pytest` does; shorten a parameter that is an absolute path to its last part."""
    for result in pytest(log):
        yield Result(_short_option(result.test), result.status)


def pytest_v2(log: str) -> Iterator[Result]:
    """Read coloured logs and `path::test PASSED` as well; ids keep their spaces."""
    for raw in log.split("\n"):
        line = _COLOUR.sub("", raw).translate(_CONTROL)
        if line.startswith(STATUSES):
            is_failed = line.startswith(TestStatus.FAILED)
            status, *words = (line.partition(" - ")[0] if is_failed else line).split()
            if not _counts_skips(status, words):
                yield from _result(status, words)
        elif line.endswith(STATUSES):
            *words, status = line.split()
            yield from _result(status, words)


def matplotlib(log: str) -> Iterator[Result]:
    """Read as `pytest` does, with mouse buttons as numbers, as in the expected lists."""
    return pytest(log.replace("MouseButton.LEFT", "1").replace("MouseButton.RIGHT", "3"))


def seaborn(log: str) -> Iterator[Result]:
    """Read passes and failures only, from verbose lines and summary lines."""
    for line in log.split("\n"):
        match line.split(maxsplit=2):
            case [_, test, *_] if line.startswith("FAILED"):
                yield Result(test, TestStatus.FAILED)
            case [test, second, *_] if " PASSED " in line:
                if second == "PASSED":
                    yield Result(test, TestStatus.PASSED)
            case [_, test, *_] if line.startswith("PASSED"):
                yield Result(test, TestStatus.PASSED)


def swesmith(log: str) -> Iterator[Result]:
    """Read verbose lines only: the id, then the status."""
    for line in log.split("\n"):
        if match := _VERBOSE.match(line):
            yield Result(match[1], TestStatus(match[2]))


def _result(status: str, words: Sequence[str]) -> Iterator[Result]:
    """Yield a result, unless the line only looks like one."""
    if words and status in STATUSES:
        yield Result(" ".join(words), TestStatus(status))


def _counts_skips(status: str, words: Sequence[str]) -> bool:
    """Match `SKIPPED [3] path:12: reason`, not `PASSED [100%]`, an id in two real lists."""
    return status == TestStatus.SKIPPED and bool(words and _SKIP_COUNT.fullmatch(words[0]))


def _short_option(test: str) -> str:
    start, end = test.find("["), test.rfind("]")
    if start < 0 or end < start:
        return test
    option = test[start + 1 : end]
    if option.startswith("/") and not option.startswith("//") and "*" not in option:
        option = "/" + option.rsplit("/", maxsplit=1)[-1]
    return f"{test[:start]}[{option}]"


_NAME = re.compile(r"(\w+) \(([\w.<>]+)\)")
_ENDINGS = (
    ("ok", TestStatus.PASSED),
    ("FAIL", TestStatus.FAILED),
    ("ERROR", TestStatus.ERROR),
    ("expected failure", TestStatus.XFAIL),
    ("unexpected success", TestStatus.FAILED),
)
_HEADINGS = (("FAIL: ", TestStatus.FAILED), ("ERROR: ", TestStatus.ERROR))


@worst_wins
def unittest(log: str) -> Iterator[Result]:
    """Read `test_x (module.Class.test_x) ... ok` as `module.Class.test_x`, in old logs as well.

    A docstring's first line or the test's own output may stand before the status.
    """
    pending = ""
    for raw in lines(log):
        line = raw.strip()
        if heading := next((h for h in _HEADINGS if line.startswith(h[0])), None):
            if test := _id(line.removeprefix(heading[0])):
                yield Result(test, heading[1])
            continue
        pending = _id(line) or pending
        status = _ending(line) if pending else None
        if status is not None:
            yield Result(pending, status)
            pending = ""


def _id(line: str) -> str:
    if (match := _NAME.match(line)) is None:
        return ""
    name, place = match.groups()
    return place if place.rpartition(".")[2] == name else f"{place}.{name}"


def _ending(line: str) -> TestStatus | None:
    """Read the status at the end of a line, which may hold nothing else."""
    last = line.rpartition(" ... ")[2]
    if last.startswith("skipped ") or last == "skipped":
        return TestStatus.SKIPPED
    return next((status for word, status in _ENDINGS if last == word), None)


_DJANGO_OK = (" ... ok", " ... OK", " ...  OK")
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
        # The test passed, but its output is between its name and its status.
        if line.startswith("ok") and pending is not None:
            yield Result(pending, TestStatus.PASSED)
    yield from _interrupted(lines)


def _line(line: str) -> Iterator[Result]:
    for suffix in _DJANGO_OK:
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
    """Read tests whose status is `ok` on a line of its own, after a message of the runner."""
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


_SYMPY = {" E": TestStatus.ERROR, " F": TestStatus.FAILED, " ok": TestStatus.PASSED}


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
            for ending, status in _SYMPY.items():
                if line.endswith(ending):
                    yield Result(line.split(maxsplit=1)[0], status)


_R2E_SUMMARY = "short test summary info"
_R2E = (TestStatus.PASSED, TestStatus.FAILED, TestStatus.ERROR)


def r2e(log: str) -> Iterator[Result]:
    """Read `PASSED r2e_tests/test_1.py::Class::test_x` in the summary as `Class.test_x`.

    The status is the line's first word. The original looks for the words anywhere in the line, so a
    failing `test_PASSED_x` passes there.
    """
    # Only the first summary's text, up to a second heading.
    summary = "\n".join(lines(log)).split(_R2E_SUMMARY, 2)[1:2]
    for line in summary[0].split("\n") if summary else ():
        word, _, rest = line.strip().partition(" ")
        if word in _R2E and rest:
            yield Result(r2e_id(rest), TestStatus(word))


def r2e_id(test: str) -> str:
    """Return a test's id as R2E-Gym writes it: without file and message, joined by dots.

    Empty for a file that could not be collected.
    """
    return ".".join(test.split("::")[1:]).split(" - ")[0].strip()
