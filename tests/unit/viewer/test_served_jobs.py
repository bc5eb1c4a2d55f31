"""Jobs while they are viewed: what is read, kept and forgotten."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from pages import unpacked
from swe_rollout.store.journals import JournalRef
from swe_rollout.store.store import Store
from swe_rollout.types.episode import EpisodeId
from swe_rollout.viewer import served_jobs
from swe_rollout.viewer.page import PageJob
from swe_rollout.viewer.served_jobs import Reading, ServedJob, ServedStore
from unit.cli.store_parts import EPISODES, stored


def job_at(address: str) -> ServedJob:
    store = Store.open(f"file://{Path(address).parent}")
    return ServedJob(store, PageJob("demo", address, (), complete=False), number=0)


def news(job: ServedJob, generation: int = 0, start: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = unpacked(job.news(generation, start, None))
    return found


@pytest.fixture
async def address(tmp_path: Path) -> str:
    return await asyncio.to_thread(stored, tmp_path)


async def test_rows_begin_anew_when_a_record_is_gone(address: str) -> None:
    job = job_at(address)
    await job.reading.finish()
    assert len(news(job)["rows"]) == 2
    assert news(job, 0, 1)["start"] == 1

    await asyncio.to_thread(shutil.rmtree, Path(address, "episodes", "a", "1"))
    await job.reading.finish()
    await job.reading.finish()

    again = news(job, 0, 2)
    assert (again["generation"], again["start"]) == (1, 0)
    assert [row["sample"] for row in again["rows"]] == [0]
    assert again["summary"]["committed"] == 1


async def test_what_has_begun_is_named_with_how_often_it_was_saved(address: str) -> None:
    job = job_at(address)
    begun = EpisodeId("demo", "a", 7)
    for number in range(2):
        assert await job.store.journals("demo").create(JournalRef(begun, 1, 0), number, b"x")
    await job.reading.finish()
    assert news(job)["running"] == [["a/7", 2]]


async def test_more_rows_than_memory_are_counted_only(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_jobs, "MOST_ROWS", 1)
    job = job_at(address)
    await job.reading.finish()
    assert len(news(job)["rows"]) == 1
    assert news(job)["summary"]["committed"] == 2


async def test_jobs_viewed_long_ago_are_forgotten_and_keep_their_numbers(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.to_thread(
        shutil.copytree, address, Path(address).parent / "demo2", dirs_exist_ok=True
    )
    store = ServedStore(Store.open(f"file://{Path(address).parent}"), "runs")
    await store.read()
    first, second = store.jobs
    assert (first.page.summary or {})["committed"] == 2
    monkeypatch.setattr(served_jobs, "MOST_ROWS", 1)

    store.make_room(second)

    assert first.rows == []
    assert (first.page.summary or {})["committed"] == 2


async def test_a_job_whose_plan_is_broken_hides_no_other(address: str) -> None:
    broken = Path(address).parent / "broken"
    await asyncio.to_thread(broken.mkdir)
    await asyncio.to_thread((broken / "plan.json").write_text, "no plan")
    store = ServedStore(Store.open(f"file://{Path(address).parent}"), "runs")

    await store.read()

    found: dict[str, Any] = unpacked(store.news())
    assert [(job["name"], job["committed"]) for job in found["jobs"]] == [("demo", len(EPISODES))]
    assert found["problems"][0].startswith("broken: ")


async def test_a_reading_is_done_by_one_at_a_time_and_rests() -> None:
    done: list[int] = []

    async def work() -> None:
        await asyncio.sleep(0)
        done.append(1)

    reading = Reading(work)
    reading.refresh()
    reading.refresh()
    await reading.finish()
    reading.refresh()
    assert not reading.is_running
    assert len(done) == 1
