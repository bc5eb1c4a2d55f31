"""`regrade`: a report on stdout and in a file; records stay as they are."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from swe_rollout.grading.grader import Grader
from swe_rollout.sandbox.repository import Patch
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Instance
from swe_rollout.types.verdict import TestReport, TestStatus, Verdict, VerdictStatus
from unit.cli.cli_parts import Cli
from unit.cli.store_parts import EPISODES, damage, stored
from unit.export.export_parts import failed
from unit.worker.work_parts import TASK, OneSandbox, TableSandbox

GOOD = TestReport({"t": TestStatus.PASSED}, {"u": TestStatus.PASSED})
BAD = TestReport({"t": TestStatus.FAILED}, {"u": TestStatus.PASSED})


@pytest.fixture(autouse=True)
def grading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sample 0 is resolved again, sample 1 is not; no sandbox starts."""

    async def grade(
        _: Grader, instance: Instance, patch: Patch, *, episode: EpisodeId, attempt: int = 1
    ) -> Verdict:
        del instance, patch, attempt
        if episode.sample == 0:
            return Verdict(VerdictStatus.RESOLVED, GOOD)
        return Verdict(VerdictStatus.UNRESOLVED, BAD)

    monkeypatch.setattr(Grader, "grade", grade)
    monkeypatch.setattr(
        "swe_rollout.worker.sandboxes.open_sandboxes", lambda *_: OneSandbox(TableSandbox())
    )


def test_the_same_verdicts_exit_0(address: str, cli: Cli) -> None:
    told = cli("regrade", f"{address}/a/0", "-k", "3")
    assert "3 resolved" in told.out
    assert "1 episodes: 0 with another verdict" in told.err


def test_another_verdict_exits_1_and_is_in_the_report(
    address: str, tmp_path: Path, cli: Cli
) -> None:
    records = {path: path.read_bytes() for path in Path(address).rglob("*") if path.is_file()}
    report = tmp_path / "report.json"
    found = cli("regrade", address, "-o", "json", "-O", str(report), code=1).json
    assert found == json.loads(report.read_text())
    assert [each["changed"] for each in found["episodes"]] == [False, True]
    assert [each["test"] for each in found["flaky_tests"]] == ["t"]
    assert {path: path.read_bytes() for path in records} == records
    assert len([path for path in Path(address).rglob("*") if path.is_file()]) == len(records)


def test_what_cant_be_graded_blocks_nothing(tmp_path: Path, cli: Cli) -> None:
    first, second = EPISODES
    other = replace(
        second, episode=EpisodeId("demo", "a", 2), instance_digest="0" * len(TASK.digest)
    )
    address = stored(
        tmp_path, [first, failed(second), other, replace(first, episode=EpisodeId("demo", "a", 3))]
    )
    damage(address, 3)
    told = cli("regrade", address, "-o", "json", code=1)
    same, skipped, changed = told.json["episodes"]
    assert same["changed"] is False
    assert skipped["skipped"] == "it failed before its diff was made"
    assert "has changed since the episode" in changed["failures"][0]
    assert "damaged" in told.err
