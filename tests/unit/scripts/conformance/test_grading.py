"""`scripts/conformance grading` compares verdicts and tests with official reports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from checkout import DATA
from rollout_dev.conformance.grading import main

LOG = ">>>>> Start Test Output\nPASSED t.py::a\nFAILED t.py::b - x\n>>>>> End Test Output\n"


def record(folder: Path, *, resolved: bool, bad: list[str]) -> None:
    place = folder / "harness-v4" / "pallets__flask-1"
    place.mkdir(parents=True)
    tests = ["t.py::a", "t.py::b"]
    lists = {"success": [test for test in tests if test not in bad], "failure": bad}
    status = {"FAIL_TO_PASS": lists, "PASS_TO_PASS": {"success": [], "failure": []}}
    report = {"pallets__flask-1": {"resolved": resolved, "tests_status": status}}
    (place / "report.json").write_text(json.dumps(report))
    (place / "test_output.txt").write_text(LOG)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, object], str]:
    code = main(["--json", *arguments])
    captured = capsys.readouterr()
    return code, json.loads(captured.out), captured.err


def test_agreement_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(tmp_path, resolved=False, bad=["t.py::b"])
    code, report, _ = run(capsys, str(tmp_path))
    assert (code, report["ok"]) == (0, True)
    assert report["rows"] == [{"subject": "harness-v4", "logs": 1, "agree": 1, "tests": 2}]


def test_every_disagreement_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(tmp_path, resolved=True, bad=["t.py::a"])
    code, report, shown = run(capsys, str(tmp_path))
    assert (code, report["ok"]) == (1, False)
    assert "unresolved; the report says resolved=True" in shown
    assert "FAIL_TO_PASS 't.py::a' is met here" in shown
    assert "FAIL_TO_PASS 't.py::b' is unmet here" in shown


@pytest.mark.parametrize("broken", ["", "{}", '{"pallets__flask-1": {"resolved": 3}}'])
def test_a_broken_report_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], broken: str
) -> None:
    record(tmp_path, resolved=True, bad=[])
    (tmp_path / "harness-v4" / "pallets__flask-1" / "report.json").write_text(broken)
    assert main([str(tmp_path)]) == 2
    assert "report.json: " in capsys.readouterr().err


def test_a_folder_without_logs_says_what_belongs_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path)]) == 2
    assert "test_output.txt and report.json" in capsys.readouterr().err


@pytest.mark.skipif(
    not (DATA / "eval-logs").is_dir(),
    reason="needs recorded evaluation logs: set SWE_ROLLOUT_DATA to a folder with `eval-logs` and "
    "`swebench` (the official parquet files)",
)
def test_all_the_recorded_logs_agree(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [str(path) for path in sorted((DATA / "swebench").glob("*.parquet"))]
    code, report, _ = run(capsys, str(DATA / "eval-logs"), "--rows", *rows)
    assert (code, report["ok"], report["ratios"]) == (0, True, {"agree_to_logs": 1.0})
