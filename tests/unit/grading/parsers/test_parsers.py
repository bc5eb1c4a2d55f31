"""Log parsers by name, and the contract that all of them keep."""

from __future__ import annotations

from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swe_rollout.extension import ExtensionError
from swe_rollout.grading.parsers import LOG_PARSERS, load_parser
from swe_rollout.grading.parsers.base import LogParser
from swe_rollout.testing.extensions.log_parsers import LogParserContract
from unit.grading.parsers.parsed import parsed
from unit.grading.parsers.snippets import SNIPPETS, Snippet

NAMES = LOG_PARSERS.names()
PIECES = st.sampled_from(
    [
        *"\n\n\n\t\r []_-",
        " ... ",
        "ok",
        "PASSED ",
        "FAILED ",
        "FAIL:",
        "ERROR:",
        " F",
        "a.py:b ",
        "[",
    ]
)


class Summary(LogParserContract):
    """Parsers that read pytest's summary."""

    name: ClassVar[str]
    log = "PASSED t.py::a\nFAILED t.py::b - AssertionError\n"
    statuses: ClassVar = {"t.py::a": "PASSED", "t.py::b": "FAILED"}

    @pytest.fixture
    def parser(self) -> LogParser:
        return load_parser(self.name).parse


class TestPytest(Summary):
    name = "pytest"


class TestPytestOptions(Summary):
    name = "pytest_options"


class TestPytestV2(Summary):
    name = "pytest_v2"


class TestSeaborn(Summary):
    name = "seaborn"


class TestMatplotlib(Summary):
    name = "matplotlib"


class TestSwesmith(Summary):
    name = "swesmith"
    log = "t.py::a PASSED [ 50%]\nt.py::b FAILED [100%]\n"


class TestDjango(Summary):
    name = "django"
    log = "test_a (m.C) ... ok\ntest_b (m.C) ... FAIL\n"
    statuses: ClassVar = {"test_a (m.C)": "PASSED", "test_b (m.C)": "FAILED"}


class TestSympy(Summary):
    name = "sympy"
    log = "test_a ok\ntest_b F\n"
    statuses: ClassVar = {"test_a": "PASSED", "test_b": "FAILED"}


@pytest.fixture(params=SNIPPETS, ids=lambda snippet: snippet.parser)
def snippet(request: pytest.FixtureRequest) -> Snippet:
    found: Snippet = request.param
    return found


class TestRunners:
    """The contract for each log of a runner; its time is measured below."""

    def test_keeps_the_contract(self, snippet: Snippet) -> None:
        class Contract(LogParserContract):
            log = snippet.log
            statuses = snippet.statuses

        parser = load_parser(snippet.parser).parse
        contract = Contract()
        contract.test_reads_a_real_log(parser)
        contract.test_keeps_nothing_between_logs(parser)
        contract.test_reports_nothing_for_an_empty_log(parser)
        contract.test_reads_a_log_that_was_cut_off(parser)
        contract.test_ignores_lines_it_does_not_understand(parser)

    def test_reads_through_colours_and_control_characters(self, snippet: Snippet) -> None:
        if snippet.parser == "pytest_v2":
            pytest.skip("removes colours alone, as the official parser does")
        noisy = snippet.log.replace("\n", "\x1b[0m\x07\n").replace("PASS", "\x1b[1;32mPASS")
        assert parsed(snippet.parser, noisy) == snippet.statuses


def test_every_built_in_parser_is_under_the_contract() -> None:
    summaries = {kind.name for kind in Summary.__subclasses__()}
    assert summaries | {snippet.parser for snippet in SNIPPETS} == set(NAMES)


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


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=30)
@given(pieces=st.lists(PIECES | st.text(max_size=3), max_size=30))
def test_no_log_breaks_a_parser(name: str, pieces: list[str]) -> None:
    parsed(name, "".join(pieces))


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
