"""The contract of log parsers as tests: subclass `LogParserContract` and provide a parser.

    class TestMyParser(LogParserContract):
        log = Path("recorded.log").read_text()
        statuses = {"adds": "PASSED", "subtracts": "FAILED"}

        @pytest.fixture
        def parser(self):
            return my_parsers.tap

Needs pytest.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import ClassVar

import pytest

from swe_rollout.grading.parsers.base import LogParser, NamedLogParser

_LONG = 1_000_000
_QUICK_S = 5.0
"""Seconds: far above linear time for a long log, far below quadratic time."""
_PIECES = (
    " ",
    "_ ",
    "[",
    "\t",
    "\0",
    "\x1b[31m",
    "PASSED ",
    "PASSED x[",
    "FAILED - ",
    "é漢\n",
    "ok\n",
)


class LogParserContract:
    """The contract of a log parser. Override `log`, `statuses` and the fixture `parser`."""

    log: ClassVar[str] = ""
    """A real log, preferably with passed and failed tests."""
    statuses: ClassVar[Mapping[str, str]] = {}
    """The status of each test in the log: `PASSED`, `FAILED`, `ERROR`, `SKIPPED` or `XFAIL`."""

    @pytest.fixture
    def parser(self) -> LogParser:
        """The log parser."""
        raise NotImplementedError("override the fixture `parser`")

    def test_reads_a_real_log(self, parser: LogParser) -> None:
        assert self.statuses, "set `log` and `statuses`"
        assert _statuses(parser, self.log) == dict(self.statuses)

    def test_keeps_nothing_between_logs(self, parser: LogParser) -> None:
        first = _statuses(parser, self.log)
        _statuses(parser, "")
        assert _statuses(parser, self.log) == first

    def test_reports_nothing_for_an_empty_log(self, parser: LogParser) -> None:
        assert _statuses(parser, "") == {}

    def test_reads_a_log_that_was_cut_off(self, parser: LogParser) -> None:
        step = max(len(self.log) // 100, 1)
        for end in range(0, len(self.log), step):
            _statuses(parser, self.log[:end])

    def test_ignores_lines_it_does_not_understand(self, parser: LogParser) -> None:
        noise = "".join(f"{piece}{other}\n" for piece in _PIECES for other in _PIECES)
        _statuses(parser, noise)
        noisy = f"Collecting…\n\n{self.log.rstrip()}\n\n"
        assert _statuses(parser, noisy) == _statuses(parser, self.log)

    @pytest.mark.parametrize("piece", _PIECES)
    def test_takes_linear_time(self, parser: LogParser, piece: str) -> None:
        self.assert_linear_time(parser, piece * (_LONG // len(piece)))

    @staticmethod
    def assert_linear_time(parser: LogParser, log: str, *, limit_s: float = _QUICK_S) -> None:
        """Fail if a log of about a megabyte takes too long for linear time."""
        began = time.process_time()
        _statuses(parser, log)
        assert time.process_time() - began < limit_s


def _statuses(parser: LogParser, log: str) -> dict[str, str]:
    results = NamedLogParser("under test", parser).read(log)
    return {result.test: result.status.value for result in results}
