"""The episodes of a job are listed when they are needed, and are never too many."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import pytest

from ratios import peak_bytes
from swe_rollout.context import Attempt
from swe_rollout.datasets import swebench
from swe_rollout.datasets.row_files import Row
from swe_rollout.errors import Problem, UsageError
from swe_rollout.spec.bounds import MAX_EPISODES, MAX_SAMPLES
from swe_rollout.spec.job import RolloutJob
from swe_rollout.store.store import Store
from swe_rollout.types.instance import Instance
from swe_rollout.worker.attempts import AttemptQueue
from swe_rollout.worker.backlog import Episodes, begin
from unit.worker.worker_parts import attempts

pytestmark = pytest.mark.threat(point=7)


def tasks(count: int) -> tuple[Instance, ...]:
    return tuple(
        Instance(instance_id=f"task-{number}", problem_statement="fix it", image="i")
        for number in range(count)
    )


def job(samples: int) -> RolloutJob:
    spec = {"dataset": {"releasePairs": {}}, "policy": {"scripted": {}}, "samples": samples}
    return RolloutJob.model_validate({"metadata": {"name": "many"}, "spec": spec})


def test_a_million_episodes_take_the_memory_of_their_tasks() -> None:
    few = tasks(100)

    def first(samples: int) -> list[Attempt]:
        return list(islice(Episodes("many", few, samples=samples), 1000))

    assert len(Episodes("many", few, samples=MAX_SAMPLES)) == MAX_EPISODES
    assert [each.episode.sample for each in first(MAX_SAMPLES)] == list(range(1000))
    assert peak_bytes(lambda: first(MAX_SAMPLES)) < 1.5 * peak_bytes(lambda: first(1000))


async def test_a_job_of_too_many_episodes_is_refused_before_it_is_written(tmp_path: Path) -> None:
    store = Store.open(f"file://{tmp_path}/runs")
    with pytest.raises(UsageError, match="101 tasks × 10000 samples") as caught:
        await begin(store, job(MAX_SAMPLES), tasks(101))
    assert str(MAX_EPISODES) in caught.value.why
    assert not (tmp_path / "runs").exists()


async def test_a_job_of_the_most_episodes_is_planned(tmp_path: Path) -> None:
    store = Store.open(f"file://{tmp_path}/runs")
    backlog = await begin(store, job(MAX_SAMPLES), tasks(100))
    assert len(backlog.todo) == MAX_EPISODES


async def test_planning_can_be_interrupted_at_any_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[str] = []
    began = asyncio.Event()

    def digest(instance: Instance) -> str:
        planned.append(instance.instance_id)
        began.set()
        return "0" * 12

    monkeypatch.setattr(Instance, "digest", property(digest))
    planning = asyncio.create_task(
        begin(Store.open(f"file://{tmp_path}/runs"), job(1), tasks(50_000))
    )
    await began.wait()
    planning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await planning
    assert len(planned) < 1000


async def test_reading_rows_can_be_interrupted_at_any_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rows.jsonl").write_text('{"instance_id": "a"}\n' * 50_000)
    checked: list[object] = []
    began = asyncio.Event()

    def instance_of(row: Row, *_: object) -> Problem:
        checked.append(row)
        began.set()
        return Problem(row.place, "", "not looked at")

    monkeypatch.setattr(swebench, "instance_of", instance_of)
    reading = asyncio.create_task(swebench.load("rows.jsonl", base_dir=tmp_path))
    await began.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert len(checked) < 1000


@dataclass
class Endless:
    """A number of attempts that nobody could list, and how many were."""

    listed: list[Attempt] = field(default_factory=list)

    def __len__(self) -> int:
        return 10**15

    def __iter__(self) -> Iterator[Attempt]:
        while True:
            self.listed += attempts(1)
            yield self.listed[-1]


def test_only_what_is_looked_at_is_listed() -> None:
    queue, endless = AttemptQueue(), Endless()
    queue.add(endless)
    assert len(queue) == 10**15
    queue.peek(4)
    queue.pop()
    assert len(endless.listed) == 4
    assert len(queue.peek(0)) == 0
