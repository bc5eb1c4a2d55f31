"""pytest's report for machines: where it is asked for, how it is read, and what it denies."""

from __future__ import annotations

import pytest

from ratios import growth
from swe_rollout.grading import junit
from swe_rollout.grading.parsers import reports
from swe_rollout.types.verdict import TestStatus

S = TestStatus
REPORT = b"""<?xml version="1.0"?><testsuites><testsuite name="pytest">
<testcase classname="tests.test_a" name="test_one[x::y]" time="0.1" />
<testcase classname="tests.test_a.TestB" name="test_two"><failure message="no">E  no
tests/test_a.py:7: AssertionError</failure></testcase>
<testcase classname="tests.test_a" name="test_three"><skipped type="pytest.xfail" message="x" />
</testcase></testsuite></testsuites>"""


@pytest.mark.parametrize(
    ("commands", "with_report"),
    [
        ("pytest -rA tests", "pytest --junitxml=/r -rA tests"),
        ("python3 -m pytest -rA", "python3 -m pytest --junitxml=/r -rA"),
        ("cd a\nX=1 .venv/bin/pytest", "cd a\nX=1 .venv/bin/pytest --junitxml=/r"),
        ("python -X dev -m pytest", None),
        ("./tests/runtests.py --verbosity 2", None),
        ("pip install pytest", None),
        ("pytest a\npytest b", None),
        ("pytest --junitxml=mine", None),
        ("tox -epy39 -- pytest", None),
    ],
)
def test_the_report_is_asked_for_where_one_pytest_is_started(
    commands: str, with_report: str | None
) -> None:
    assert junit.with_report(commands, "/r") == with_report
    if with_report is not None:
        quiet = with_report.replace("--junitxml=/r", "--tb=no")
        assert junit.without_tracebacks(commands) == quiet


@pytest.mark.parametrize("line", ["\n", "A=1\n", "A=1 "])
def test_pytest_is_found_behind_any_number_of_lines(line: str) -> None:
    def find(count: int) -> None:
        assert junit.with_report(f"{line * count}x\npytest", "/r")

    assert growth(find, 1_000, 4_000) < 3


def test_a_report_is_read_by_the_keys_of_ids() -> None:
    found = junit.read_report(REPORT)
    assert found[junit.key_of("tests/test_a.py::test_one[x::y]")] is S.PASSED
    assert found[junit.key_of("tests/test_a.py::TestB::test_two")] is S.FAILED
    assert found[junit.key_of("tests/test_a.py::test_three")] is S.SKIPPED


@pytest.mark.parametrize(
    "data",
    [b"", b"no xml", REPORT[:200], b'<!DOCTYPE x [<!ENTITY a "b">]><testsuites>&a;</testsuites>'],
)
def test_what_is_no_report_has_no_cases(data: bytes) -> None:
    assert junit.read_report(data) == {}


def test_a_report_of_too_many_elements_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "MOST_ELEMENTS", 5)
    assert junit.read_report(REPORT) == {}


def test_passes_that_the_report_lacks_are_found() -> None:
    report = {"a::x": S.PASSED, "a::y": S.FAILED}
    statuses = {"a.py::x": S.PASSED, "a.py::y": S.PASSED, "a.py::z": S.PASSED, "a.py::w": S.FAILED}
    assert junit.disagreements(statuses, report, statuses) == ("a.py::y", "a.py::z")
