"""Parsers and rules against recorded logs of real evaluations and the reports made of them.

The logs are third-party data and not part of this repository.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from checkout import DATA
from rollout_dev.conformance.grading import differences, rows
from rollout_dev.conformance.recorded_logs import RecordedLog, recorded_logs
from swe_rollout.types.instance import Instance

pytestmark = pytest.mark.skipif(
    not (DATA / "eval-logs").is_dir(),
    reason="needs recorded evaluation logs: set SWE_ROLLOUT_DATA to a folder with `eval-logs` "
    "(logs and report.json of SWE-bench runs) and `swebench` (the official parquet files)",
)
LOGS = list(recorded_logs(DATA / "eval-logs"))


@cache
def known() -> dict[str, Instance]:
    return rows(sorted((DATA / "swebench").glob("*.parquet")))


def test_all_the_recorded_logs_are_there() -> None:
    found = Counter(log.harness for log in LOGS)
    assert found == {"harness-v4": 60, "harness-v1": 16, "swe-smith": 2}


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.instance_id)
def test_verdict_and_test_lists_equal_the_official_report(log: RecordedLog) -> None:
    assert list(differences(log, known().get(log.instance_id))) == []
