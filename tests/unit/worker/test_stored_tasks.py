"""A stored job's tasks are those of its records, or the work is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from swe_rollout.datasets.swebench_row import to_row
from swe_rollout.errors import SandboxError, TaskError, UsageError
from swe_rollout.spec.dataset import Dataset, SwebenchDataset
from swe_rollout.store.store import Store
from swe_rollout.worker.stored_tasks import (
    OtherDataset,
    StoredTasks,
    for_each,
    load_tasks,
    stored_job,
)
from unit.export.export_parts import trajectory
from unit.worker.work_parts import TASK, job

TASKS = StoredTasks(job(), {"a": TASK})


def test_a_record_finds_its_task() -> None:
    assert TASKS.task_of(replace(trajectory("a"), instance_digest=TASK.digest)) is TASK
    assert TASKS.task_of(replace(trajectory("a"), instance_digest="")) is TASK


def test_another_task_of_the_same_name_is_refused() -> None:
    with pytest.raises(TaskError, match="has changed"):
        TASKS.task_of(replace(trajectory("a"), instance_digest="0" * 12))
    with pytest.raises(TaskError, match="is not in the dataset"):
        TASKS.task_of(trajectory("b"))


async def test_the_job_is_as_planned_in_the_store_it_is_read_from(tmp_path: Path) -> None:
    store = Store.open(f"file://{tmp_path}")
    await store.begin(job(store={"uri": "s3://elsewhere"}), {"a": TASK.digest})
    found = await stored_job(store, "demo")
    assert found.spec.store.uri == store.uri
    assert found.metadata.name == "demo"


async def test_a_plan_without_a_job_is_refused(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    plan = {"instances": [], "spec_digest": "", "job": {}, "schema": 2}
    (tmp_path / "demo" / "plan.json").write_text(json.dumps(plan))
    with pytest.raises(UsageError, match="can't be read"):
        await stored_job(Store.open(f"file://{tmp_path}"), "demo")


async def test_all_tasks_are_loaded_whatever_the_last_run_selected(tmp_path: Path) -> None:
    rows = [to_row(replace(TASK, instance_id=name)) for name in ("a", "b")]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    dataset = {"swebench": {"uri": "rows.jsonl"}, "include": ["a"], "slice": "0:1"}
    selected = job(dataset=dataset)
    found = await load_tasks(selected, base_dir=tmp_path, on_note=print)
    assert sorted(found.instances) == ["a", "b"]
    other = OtherDataset(Dataset(swebench=SwebenchDataset(uri="rows.jsonl")), tmp_path)
    moved = job(dataset={"swebench": {"uri": "/gone.jsonl"}})
    found = await load_tasks(moved, base_dir=tmp_path, on_note=print, other=other)
    assert sorted(found.instances) == ["a", "b"]


async def numbers(count: int) -> AsyncIterator[int]:
    for number in range(count):
        yield number


async def test_work_is_done_on_every_item_on_few_at_a_time() -> None:
    done, running, most = list[int](), 0, 0

    async def work(number: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        done.append(number)

    await for_each(numbers(20), work, parallelism=3)
    assert sorted(done) == list(range(20))
    assert most == 3


async def test_the_first_error_ends_the_work() -> None:
    begun = list[int]()

    async def work(number: int) -> None:
        begun.append(number)
        await asyncio.sleep(0)
        if number == 1:
            raise SandboxError("lost")

    with pytest.raises(SandboxError):
        await for_each(numbers(1000), work, parallelism=2)
    assert len(begun) < 10
