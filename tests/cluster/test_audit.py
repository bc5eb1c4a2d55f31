"""Release pairs over pods: valid, clean in an audit, again and again; a row that lies is found."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from e2e.command import printed_json, swe_rollout

pytestmark = pytest.mark.cluster
Row = dict[str, Any]


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    if "KUBECONFIG" not in os.environ:
        pytest.skip("needs the dev cluster: run `make test-cluster`")
    found = swe_rollout(
        "datasets", "rows", "release-pairs", "--include", "sqlparse*", "--include", "tomlkit*"
    )
    return [json.loads(line) for line in found.stdout.splitlines()]


@pytest.mark.slow
def test_release_pairs_are_valid_twice(rows: list[Row]) -> None:
    for _ in range(2):
        checked = swe_rollout(
            *("validate", "release-pairs", "--sandbox", "pod", "-o", "json"),
            *(part for row in rows for part in ("--instance", row["instance_id"])),
        )
        for each in printed_json(checked)["instances"]:
            assert (each["gold"], each["empty"]) == ("resolved", "unresolved")
            assert each["watched"] > 0


@pytest.mark.slow
def test_an_audit_is_clean_but_for_the_row_that_lies(rows: list[Row], tmp_path: Path) -> None:
    good = rows[0]
    lies = {**good, "instance_id": "lies", "FAIL_TO_PASS": good["PASS_TO_PASS"][:1]}
    (tmp_path / "rows.jsonl").write_text(f"{json.dumps(good)}\n{json.dumps(lies)}\n")
    found = swe_rollout(
        *("audit", str(tmp_path / "rows.jsonl"), "--sandbox", "pod", "--runs", "2"),
        *("--out", str(tmp_path / "quarantine.jsonl"), "-o", "json"),
        check=False,
    )
    assert found.returncode == 1, found.stderr
    audited = {each["instance_id"]: each for each in printed_json(found)["instances"]}
    assert audited[good["instance_id"]]["findings"] == []
    assert audited[good["instance_id"]]["verdicts"]["gold"] == ["resolved"] * 2
    assert "base" in {each["check"] for each in audited["lies"]["findings"]}
    assert printed_json(found)["not_audited"] == []
