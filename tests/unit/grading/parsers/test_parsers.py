"""Log parsers by name, and the contract that all of them keep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from swe_rollout.extension import ExtensionError
from swe_rollout.grading.parsers import LOG_PARSERS, load_parser
from swe_rollout.grading.parsers.base import MOST_CHARS, EndlessIdsError
from swe_rollout.testing.extensions.log_parsers import LogParserContract

NAMES = LOG_PARSERS.names()


def parsed(parser: str, log: str) -> dict[str, str]:
    return {result.test: result.status.value for result in load_parser(parser).read(log)}


def statuses(entry: dict[str, Any]) -> dict[str, str]:
    words = ("passed", "failed", "error", "skipped", "xfail")
    return {test: word.upper() for word in words for test in entry.get(word, ())}


LOGS = yaml.safe_load((Path(__file__).parent / "logs.yaml").read_text("utf-8"))
RUNNERS, QUIRKS = (
    [pytest.param(each["parser"], each["log"], statuses(each), id=each["parser"]) for each in found]
    for found in (LOGS["runners"], LOGS["quirks"])
)
OFFICIAL = {
    *("pytest", "pytest_options", "pytest_v2", "seaborn", "matplotlib", "swesmith"),
    *("django", "sympy"),
}
"""Read a log as it is, as the official parsers do."""


@pytest.mark.parametrize(("parser", "log", "expected"), RUNNERS)
class TestRunners:
    """The contract for each log of a runner; its time is measured below."""

    def test_keeps_the_contract(self, parser: str, log: str, expected: dict[str, str]) -> None:
        made = type("Contract", (LogParserContract,), {"log": log, "statuses": expected})
        contract, parse = made(), load_parser(parser).parse
        contract.test_reads_a_real_log(parse)
        contract.test_keeps_nothing_between_logs(parse)
        contract.test_reports_nothing_for_an_empty_log(parse)
        contract.test_reads_a_log_that_was_cut_off(parse)
        contract.test_ignores_lines_it_does_not_understand(parse)

    def test_reads_through_colours_and_control_characters(
        self, parser: str, log: str, expected: dict[str, str]
    ) -> None:
        if parser not in OFFICIAL:
            noisy = log.replace("\n", "\x1b[0m\x07\n").replace("PASS", "\x1b[1;32mPASS")
            assert parsed(parser, noisy) == expected


@pytest.mark.parametrize(("parser", "log", "expected"), QUIRKS)
def test_official_quirks_are_kept(parser: str, log: str, expected: dict[str, str]) -> None:
    assert parsed(parser, log) == expected


def test_every_built_in_parser_is_under_the_contract() -> None:
    assert {each["parser"] for each in LOGS["runners"]} == set(NAMES)


@pytest.mark.parametrize(
    ("parser", "log"),
    [
        ("gotest", "--- FAIL: x (0s)\n--- PASS: x (0s)\n"),
        ("cargo", "test x ... FAILED\ntest x ... ok\n"),
        ("jest", "✕ x (1 ms)\n✓ x (1 ms)\n✓ x\n"),
        ("tap", "not ok 1 x\nok 2 x\n"),
        ("automake", "FAIL: x\nPASS: x\n"),
    ],
)
def test_a_later_pass_never_hides_a_failure(parser: str, log: str) -> None:
    assert parsed(parser, log) == {"x": "FAILED"}
    claims = [result.status.value for result in load_parser(parser).read(log)]
    assert set(claims) == {"FAILED", "PASSED"}, "both claims are there for those who compare them"


def test_a_pass_counts_more_than_a_skip_of_the_same_name() -> None:
    assert parsed("jest", "✓ x\n○ skipped x\n") == {"x": "PASSED"}


def test_of_runs_of_one_test_ctest_counts_the_last() -> None:
    log = "1/1 Test #1: x ....***Failed  0.1 sec\n1/1 Test #1: x ....   Passed  0.1 sec\n"
    assert parsed("ctest", log) == {"x": "PASSED"}


HOSTILE = (
    ".py:",
    "x ... Testing against Django installed in ",
    "x ... Internal Server Error: /\n",
    "x ... Testing against Django installed in \n",
    " ",
    "\t ",
    "\n",
    "\x1b[",
    "\x1b[0;1",
    "--- PASS: x (",
    "test x ... ok ",
    "1/1 Test #1: x ..",
    "test_x (m.C) ... ",
    "<testsuite><testcase name='a'>",
    "<testsuite",
    "<testsuite><",
    "<doctest>",
    '{"stats":',
    '\n{"stats":',
    "✓ x (1 ",
    "  x\n    ",
    "✔ \n ✔ x\n",
    "ok 1 x # ",
    "-Dtest=x ",
    "-Dtest=x\n",
    "x > y\n",
    "[ OK ] x (",
    "[err]: a in ",
    "x = 0.0 s = ",
    "x:\t.",
    ": ",
    "a - passed - ",
    "x .... ",
    "Chrome 1 (",
    "HeadlessChrome 1 (Linux 1) FAILED",
    "  1)",
    "1)\n",
    "  1) Error",
    "Tests run: 1, Failures: 1, Errors: 1, Skipped: 1, Time elapsed in ",
    "<<< ERROR!\n",
    "1" * 50,
)


@pytest.mark.parametrize("name", NAMES)
def test_a_hostile_log_takes_linear_time(name: str) -> None:
    parser = load_parser(name).parse
    starts = {"karma": "Starting browser\n", "lighthouse_mocha": "running 1 test files\n"}
    head = starts.get(name, "") + " ./node_modules/.bin/jest  xvfb-run short test summary info\n"
    for piece in HOSTILE:
        # Quadratic time would be minutes.
        LogParserContract.assert_linear_time(parser, head + piece * (100_000 // len(piece)))


@pytest.mark.parametrize("name", NAMES)
def test_two_megabytes_are_read(name: str) -> None:
    line = f"\x1b[32mPASS: a ✓ b (1 ms)\x1b[0m{'  1) test c ... ok' * 30}\n"
    log = line * 3_600
    assert len(log) > 2_000_000
    LogParserContract.assert_linear_time(load_parser(name).parse, log)


SUITES = {
    "mocha": ("  {}\n", "    ✓ x\n", ""),
    "rspec": ("{}\n", "  x\n", ""),
    "phpunit": ("{} (X)\n", " ✔ x\n", ""),
    "karma": ("Starting browser\n  {}\n", "    ✔ x\n", ""),
    "highlightjs": ("  {}\n", "    ✓ x\n", ""),
    "doctest": ("<doctest><TestCase name='{}'>", "<SubCase name='x'/>", "</TestCase></doctest>"),
}


@pytest.mark.parametrize("name", SUITES)
def test_a_name_that_many_ids_begin_with_is_not_read_without_end(name: str) -> None:
    head, test, end = SUITES[name]
    parser = load_parser(name)
    assert len(parser.read(head.format("s" * 1000) + test * 9 + end)) >= 9
    with pytest.raises(EndlessIdsError):
        parser.read(head.format("s" * (MOST_CHARS // 8)) + test * 9 + end)


def test_an_unknown_parser_names_the_known_ones() -> None:
    with pytest.raises(ExtensionError, match="did you mean django"):
        load_parser("djang")


def test_a_parser_of_a_users_own_gets_its_parameters() -> None:
    parser = load_parser(f"{__name__}:tap", {"word": "fine"})
    assert {r.test: r.status.value for r in parser.read("fine 1\nok 2\n")} == {"1": "PASSED"}


@pytest.mark.parametrize("parameters", [{}, {"log": "x"}])
def test_a_parser_that_can_not_be_called_is_refused_before_anything_is_graded(
    parameters: dict[str, object],
) -> None:
    with pytest.raises(ExtensionError, match="can't be called with one argument"):
        load_parser(f"{__name__}:tap", parameters)


def tap(log: str, *, word: str) -> dict[str, str]:
    lines = (line.split() for line in log.splitlines())
    return {words[1]: "PASSED" for words in lines if words[0] == word}
