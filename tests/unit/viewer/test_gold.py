"""The reference fix beside a patch, or the reason that there is none."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from swe_rollout.datasets.swebench_row import to_row
from swe_rollout.store.store import Store
from swe_rollout.types.instance import Instance
from swe_rollout.viewer.gold import GoldPatches
from unit.cli.store_parts import EPISODES, stored
from unit.worker.work_parts import TASK

FIXED = replace(TASK, gold_patch="diff --git a/x b/x\n")
EPISODE = replace(EPISODES[0], instance_digest=FIXED.digest)


@pytest.mark.parametrize(
    ("rows", "shown"),
    [
        ([FIXED], {"patch": "diff --git a/x b/x\n"}),
        ([TASK], {"why": "its task has changed since the episode"}),
        ([replace(FIXED, instance_id="b")], {"why": "its task is not in the dataset any more"}),
    ],
)
async def test_the_fix_is_of_the_very_task(
    tmp_path: Path, rows: list[Instance], shown: dict[str, str]
) -> None:
    await asyncio.to_thread(stored, tmp_path)
    text = "".join(f"{json.dumps(to_row(row))}\n" for row in rows)
    await asyncio.to_thread((tmp_path / "rows.jsonl").write_text, text)
    gold = GoldPatches(Store.open(f"file://{tmp_path}/runs"), "demo")
    assert await gold.beside(EPISODE) == shown


async def test_a_dataset_that_is_gone_is_the_reason(tmp_path: Path) -> None:
    await asyncio.to_thread(stored, tmp_path)
    await asyncio.to_thread((tmp_path / "rows.jsonl").unlink)
    gold = GoldPatches(Store.open(f"file://{tmp_path}/runs"), "demo")
    found = await gold.beside(EPISODE)
    assert found["why"].startswith("the tasks of the job can't be read here: ")
    assert "rows.jsonl" in found["why"]
