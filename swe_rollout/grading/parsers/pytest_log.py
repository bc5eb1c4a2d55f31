"""Parse logs of pytest: the `-rA` summary, verbose lines, and variants for some projects."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from swe_rollout.grading.parsers.base import STATUSES, Result
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
    """Yield a result, unless the line only looked like one."""
    if words and status in STATUSES:
        yield Result(" ".join(words), TestStatus(status))


def _counts_skips(status: str, words: Sequence[str]) -> bool:
    """Whether it is `SKIPPED [3] path:12: reason`. `PASSED [100%]` is an id of two real lists."""
    return status == TestStatus.SKIPPED and bool(words and _SKIP_COUNT.fullmatch(words[0]))


def _short_option(test: str) -> str:
    start, end = test.find("["), test.rfind("]")
    if start < 0 or end < start:
        return test
    option = test[start + 1 : end]
    if option.startswith("/") and not option.startswith("//") and "*" not in option:
        option = "/" + option.rsplit("/", maxsplit=1)[-1]
    return f"{test[:start]}[{option}]"
