"""Real rows are audited: good ones are clean, each way to lie is found, a job leaves those out."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from e2e.command import Job, printed_json, swe_rollout
from swe_rollout.types.bad_rows import BadRow

Row = dict[str, Any]
PYTEST = "python3 -m pytest -rA -p no:cacheprovider -o addopts="
WEAK_TEST = """\
diff --git a/tests/test_weak.py b/tests/test_weak.py
new file mode 100644
--- /dev/null
+++ b/tests/test_weak.py
@@ -0,0 +1,6 @@
+import sqlparse
+
+
+def test_hint():
+    kept = sqlparse.format("select /*+ hint */ 1", strip_comments=True)
+    assert "hint" in kept
"""
"""Fails on the base, and passes with the fix; and also when no comment is stripped at all."""


@dataclass(frozen=True)
class Audited:
    """What an audit of rows printed, and the folder of its files."""

    folder: Path
    exit_code: int
    instances: dict[str, Any]

    @property
    def bad(self) -> dict[str, BadRow]:
        """The lines of its quarantine file."""
        lines = (self.folder / "quarantine.jsonl").read_bytes().splitlines()
        return {row.instance_id: row for row in map(BadRow.of_line, lines)}


def audit(folder: Path, *rows: Row, runs: int = 1) -> Audited:
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    (folder / "rows.jsonl").write_text(text)
    files = (str(folder / "rows.jsonl"), "--out", str(folder / "quarantine.jsonl"))
    done = swe_rollout("audit", *files, "--runs", str(runs), "-o", "json", check=False)
    assert done.returncode in (0, 1), done.stderr
    found = printed_json(done)
    assert found["not_audited"] == []
    assert len(found["instances"]) == len(rows), done.stderr
    return Audited(
        folder, done.returncode, {each["instance_id"]: each for each in found["instances"]}
    )


@pytest.fixture(scope="module")
def rows() -> dict[str, Row]:
    """Rows of two release pairs, by project."""
    found = swe_rollout("datasets", "rows", "release-pairs").stdout.splitlines()
    named = {row["instance_id"].partition("-")[0]: row for row in map(json.loads, found)}
    return {name: named[name] for name in ("sqlparse", "tomlkit")}


@pytest.fixture(scope="module")
def good(rows: dict[str, Row]) -> Row:
    """A row of few tests: an audit runs them thirty times."""
    row = rows["sqlparse"]
    fixed, kept = row["FAIL_TO_PASS"], row["PASS_TO_PASS"][:2]
    return {**row, "PASS_TO_PASS": kept, "test_cmd": f"{PYTEST} {' '.join([*fixed, *kept])}"}


@pytest.fixture(scope="module")
def lying(good: Row, tmp_path_factory: pytest.TempPathFactory) -> Audited:
    """A good row, and ones made of it that lie."""
    fixed, kept = good["FAIL_TO_PASS"], good["PASS_TO_PASS"]
    bad: dict[str, Row] = {
        "gold": {"FAIL_TO_PASS": [*fixed, "tests/test_format.py::test_of_another_release"]},
        "base": {"FAIL_TO_PASS": kept[:1], "PASS_TO_PASS": []},
        "skip": {"eval_type": "fail_only"},
        "constant": {
            "test_patch": WEAK_TEST,
            "test_cmd": f"{PYTEST} tests/test_weak.py",
            "FAIL_TO_PASS": ["tests/test_weak.py::test_hint"],
            "PASS_TO_PASS": [],
        },
        "task": {"test_patch": WEAK_TEST.replace("new file mode 100644\n--- /dev/null", "--- a/x")},
    }
    changed = [{**good, **change, "instance_id": name} for name, change in bad.items()]
    return audit(tmp_path_factory.mktemp("lying"), good, *changed)


@pytest.mark.slow
def test_release_pairs_are_clean_and_a_second_audit_runs_nothing(
    rows: dict[str, Row], tmp_path: Path
) -> None:
    first = audit(tmp_path, *rows.values(), runs=2)
    assert (first.exit_code, first.bad) == (0, {})
    for each in first.instances.values():
        assert each["verdicts"]["gold"] == ["resolved"] * 2
        assert len(each["verdicts"]) == 7, each["not_applicable"]
        assert each["gold_seconds"]["min"] > 0
    assert audit(tmp_path, *rows.values(), runs=2).instances == first.instances


@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("gold", "gold"),
        ("base", "base"),
        ("skip", "skipped_calls"),
        ("constant", "constant_return"),
        ("task", "task"),
    ],
)
def test_a_row_that_lies_is_found_by_its_check_with_evidence(
    lying: Audited, name: str, check: str
) -> None:
    (finding,) = [each for each in lying.bad[name].findings if each.check == check]
    assert lying.exit_code == 1
    assert lying.instances[name]["bad"]
    assert finding.message
    if check != "task":
        assert finding.statuses
        assert finding.log_tail


def test_the_row_that_they_were_made_of_is_not_accused(lying: Audited) -> None:
    assert set(lying.bad) == set(lying.instances) - {"sqlparse-0.5.2"}


@pytest.mark.slow
def test_a_killed_audit_goes_on_with_the_rows_that_are_left(
    lying: Audited, good: Row, rows: dict[str, Row], tmp_path: Path
) -> None:
    journal = tmp_path / "quarantine.jsonl.audited"
    shutil.copy(lying.folder / "quarantine.jsonl.audited", journal)
    with journal.open("ab") as file:
        file.write(b'{"instance_id":"tomlkit')
    found = audit(tmp_path, good, rows["tomlkit"])
    assert (found.exit_code, found.bad) == (0, {})
    assert set(found.instances) == {"sqlparse-0.5.2", rows["tomlkit"]["instance_id"]}


def test_a_job_leaves_out_what_is_in_quarantine_and_says_so(
    lying: Audited, job_file: Callable[..., Job], tmp_path: Path
) -> None:
    for name in ("rows.jsonl", "quarantine.jsonl"):
        shutil.copy(lying.folder / name, tmp_path / name)
    dataset = {"swebench": {"uri": "rows.jsonl"}, "quarantine": "quarantine.jsonl"}
    job = job_file(scenarios=["gold"], dataset=dataset)

    done = swe_rollout("run", str(job.path), "-o", "json")

    state = printed_json(done)
    assert (state["episodes"], state["resolved"]) == (1, 1)
    assert "quarantine.jsonl leaves out 5 of 6 tasks" in done.stderr
    assert (
        sum(printed_json(swe_rollout("status", job.uri, "-o", "json"))["quarantined"].values()) == 5
    )


def test_a_quarantine_file_of_another_kind_is_refused_by_line(
    lying: Audited, job_file: Callable[..., Job], tmp_path: Path
) -> None:
    shutil.copy(lying.folder / "rows.jsonl", tmp_path / "rows.jsonl")
    dataset = {"swebench": {"uri": "rows.jsonl"}, "quarantine": "rows.jsonl"}
    done = swe_rollout("run", str(job_file(scenarios=["gold"], dataset=dataset).path), check=False)
    assert done.returncode == 2
    assert "rows.jsonl:6: " in done.stderr
