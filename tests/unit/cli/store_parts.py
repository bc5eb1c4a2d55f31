"""A stored job for verbs that read one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from swe_rollout.datasets.swebench_row import to_row
from swe_rollout.store.plans import Owner
from swe_rollout.store.store import Store
from swe_rollout.types.trajectory import Trajectory
from unit.export.export_parts import trajectory
from unit.worker.work_parts import TASK, job

EPISODES = tuple(
    replace(trajectory("a", sample), instance_digest=TASK.digest) for sample in range(2)
)


def stored(
    folder: Path, episodes: Sequence[Trajectory] = EPISODES, *, owner: Owner | None = None
) -> str:
    """Write a job with a file of its tasks; return its address."""
    rows = folder / "rows.jsonl"
    rows.write_text(json.dumps(to_row(TASK)) + "\n")
    planned = job(samples=2, dataset={"swebench": {"uri": str(rows)}})

    async def write() -> None:
        store = Store.open(f"file://{folder}/runs")
        await store.begin(planned, {"a": TASK.digest}, owner=owner)
        for each in episodes:
            assert await store.commit(each)

    asyncio.run(write())
    return f"{folder}/runs/demo"


def damage(address: str, sample: int) -> None:
    """Break the record of a sample."""
    Path(address, "episodes", "a", str(sample), "trajectory.json.zst").write_bytes(b"broken")
