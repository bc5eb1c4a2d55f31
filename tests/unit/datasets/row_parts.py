"""Rows in SWE-bench's form, and files of them."""

from __future__ import annotations

import json
from pathlib import Path

from checkout import ROOT
from swe_rollout.datasets import swebench
from swe_rollout.errors import Problem
from swe_rollout.types.instance import Instance

DIFF = (
    "diff --git a/tests/test_a.py b/tests/test_a.py\n--- a/tests/test_a.py\n+++ b/tests/test_a.py\n"
)


ROWS = ROOT / "scripts" / "rollout_dev" / "fuzz" / "samples" / "rows.jsonl"
SAMPLES: dict[str, dict[str, object]] = dict(map(json.loads, ROWS.read_text().splitlines()))
"""A row of each format, by its name."""
GOOD: dict[str, object] = {
    "instance_id": "pallets__flask-5014",
    "repo": "pallets/flask",
    "base_commit": "7ee9ceb71e868944a46e1ff00b506772a53a4f1d",
    "problem_statement": "Require a non-empty name for Blueprints",
    "patch": DIFF.replace("tests/test_a", "src/a"),
    "test_patch": DIFF,
    "FAIL_TO_PASS": ["tests/test_a.py::test_one"],
    "PASS_TO_PASS": [],
}


async def read(folder: Path, name: str, data: bytes) -> tuple[Instance | Problem, ...]:
    (folder / name).write_bytes(data)
    return await swebench.load(name, base_dir=folder)


async def problem(folder: Path, changes: dict[str, object]) -> str:
    [result] = await read(folder, "rows.jsonl", json.dumps(GOOD | changes).encode())
    assert isinstance(result, Problem)
    return str(result)


def lines(*rows: dict[str, object]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)
