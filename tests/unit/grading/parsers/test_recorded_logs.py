"""Parsers and rules against recorded logs of real evaluations and the reports made of them.

The logs are third-party data and not part of this repository.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache

import pyarrow.parquet as pq
import pytest

from checkout import DATA
from swe_rollout.datasets.official_parsers import parser_of
from swe_rollout.grading import rules
from swe_rollout.grading.parsers import load_parser
from swe_rollout.types.instance import Expected, Rule
from swe_rollout.types.verdict import VerdictStatus

LOGS = DATA / "eval-logs"

pytestmark = pytest.mark.skipif(
    not LOGS.is_dir(),
    reason="needs recorded evaluation logs: set SWE_ROLLOUT_DATA to a folder with `eval-logs` "
    "(logs and report.json of SWE-bench runs) and `swebench` (the official parquet files)",
)

V4 = sorted(path.name for path in (LOGS / "harness-v4").glob("*") if path.is_dir())
V1 = json.loads((LOGS / "harness-v1" / "verdicts.json").read_text()) if LOGS.is_dir() else []
SMITH = sorted(path.name for path in (LOGS / "swe-smith").glob("*") if path.is_dir())


@dataclass(frozen=True, slots=True)
class Row:
    """What a row of the official data says about grading."""

    parser: str
    expected: Expected


@cache
def rows() -> dict[str, Row]:
    columns = ["instance_id", "log_parser", "FAIL_TO_PASS", "PASS_TO_PASS"]
    found = {}
    for name in ("Lite_test", "Verified_test"):
        table = pq.read_table(DATA / "swebench" / f"SWE-bench_{name}.parquet", columns=columns)
        for row in table.to_pylist():
            lists = (json.loads(row[key]) for key in ("FAIL_TO_PASS", "PASS_TO_PASS"))
            fixed, kept = map(tuple, lists)
            found[row["instance_id"]] = Row(row["log_parser"], Expected(fixed, kept))
    return found


def judged(log: str, parser: str, expected: Expected) -> rules.Judgement:
    name = parser_of(parser)
    assert name is not None
    results = load_parser(name).read(log)
    statuses = {result.test: result.status for result in results}
    return rules.judge(statuses, expected, Rule.F2P_P2P)


def between_marks(log: str) -> str:
    after = log.partition(">>>>> Start Test Output")[2]
    return after.partition(">>>>> End Test Output")[0]


def test_all_the_recorded_logs_are_there() -> None:
    assert (len(V4), len(V1), len(SMITH)) == (60, 16, 2)


@pytest.mark.parametrize("instance", V4)
def test_verdict_and_test_lists_equal_the_official_report(instance: str) -> None:
    folder = LOGS / "harness-v4" / instance
    report = json.loads((folder / "report.json").read_text())[instance]
    row = rows()[instance]
    log = between_marks((folder / "test_output.txt").read_text())
    judgement = judged(log, row.parser, row.expected)
    assert (judgement.status is VerdictStatus.RESOLVED) == report["resolved"]
    for tests, accepted, name in (
        (judgement.report.fail_to_pass, rules.FIXED, "FAIL_TO_PASS"),
        (judgement.report.pass_to_pass, rules.KEPT, "PASS_TO_PASS"),
    ):
        official = report["tests_status"][name]
        unmet = rules.unmet(tests, accepted, Rule.F2P_P2P)
        assert unmet == official["failure"]
        assert [test for test in tests if test not in set(unmet)] == official["success"]


@pytest.mark.parametrize(("run", "instance", "resolved"), V1)
def test_verdicts_of_the_first_harness_are_reproduced(
    run: str, instance: str, *, resolved: bool
) -> None:
    log = (LOGS / "harness-v1" / run / f"{instance}.{run}.eval.log").read_text()
    tests = log.rpartition(">>>>> Applied Patch (pred)")[2]
    row = rows()[instance]
    verdict = judged(tests, row.parser, row.expected).status
    assert (verdict is VerdictStatus.RESOLVED) == resolved


@pytest.mark.parametrize("instance", SMITH)
def test_swe_smith_reports_are_reproduced(instance: str) -> None:
    report = json.loads((LOGS / "swe-smith" / instance / "report.json").read_text())
    lists = [report["tests_status"][name] for name in ("FAIL_TO_PASS", "PASS_TO_PASS")]
    fixed, kept = (tuple(tests["success"] + tests["failure"]) for tests in lists)
    expected = Expected(fixed, kept)
    log = between_marks((LOGS / "swe-smith" / instance / "test_output.txt").read_text())
    verdict = judged(log, "swesmith", expected).status
    assert (verdict is VerdictStatus.RESOLVED) == report["resolved"]
