"""A job on the cluster is followed by its status, and by the records in its store."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from swe_rollout.cli import job_display, job_records, stored_display
from swe_rollout.cli.job_display import _open_job_display
from swe_rollout.cli.job_records import JobRecords
from swe_rollout.cli.options import DisplayKind
from swe_rollout.cluster.job_objects import JobObject
from swe_rollout.launcher.watched_job import WatchedJob, job_snapshot
from swe_rollout.live.snapshot import Count, Snapshot
from swe_rollout.store.plans import Owner
from swe_rollout.store.store import Store
from unit.cli.job_parts import cluster_job
from unit.cli.store_parts import EPISODES, stored
from waits import until


def followed(uri: str, **status: Any) -> JobObject:
    """The job `demo` of the namespace `ns`, whose records are in that store."""
    spec = {"store": {"uri": uri}}
    seen = cluster_job(**status)
    body = {
        "metadata": {"name": "demo", "namespace": "ns", "uid": "u", "generation": 1},
        "spec": spec,
        "status": seen.status.model_dump(mode="json", by_alias=True),
    }
    return JobObject.decode(json.dumps(body).encode())


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_display, "LOCAL_POLL_S", 0.01)


async def owned(folder: Path, *, namespace: str = "ns", episodes: int = 1) -> Store:
    """The store of the job, whose workers are of that namespace."""
    owner = Owner(namespace, "as seen from inside")
    await asyncio.to_thread(stored, folder, EPISODES[:episodes], owner=owner)
    store = Store.open(f"file://{folder}/runs")
    assert await store.owner("demo") == owner
    return store


async def seen(
    job: JobObject, act: Callable[[Callable[[], Snapshot]], Awaitable[None]]
) -> tuple[Snapshot, list[str]]:
    """What is shown after `act` has seen what it waits for, and the notes."""
    notes: list[str] = []
    watched = WatchedJob(job)
    records = JobRecords(job, notes.append)

    def shown() -> Snapshot:
        return records.added_to(job_snapshot(watched))

    async with records.reading():
        await act(shown)
    return shown(), notes


@pytest.mark.usefixtures("fast")
async def test_the_records_add_what_the_status_does_not_tell(tmp_path: Path) -> None:
    store = await owned(tmp_path)
    job = followed(store.uri)

    async def commit(shown: Callable[[], Snapshot]) -> None:
        assert shown().records is None
        await until(lambda: shown().records)
        assert await store.commit(EPISODES[1])  # read once more at the end, if not before

    found, notes = await seen(job, commit)

    assert notes == []
    assert (found.committed, found.total, found.phases[1]) == (3, 8, Count("running", 2))
    assert found.records is not None
    assert found.records.turns.p50_s == pytest.approx(1.5, rel=0.04)
    assert found.records.groups is not None
    assert (found.records.groups.complete, found.records.groups.with_signal) == (1, 0)
    assert sum(found.records.reward_bins) == 2
    # By owner and as the records tell, where the status has types.
    assert found.failures == ()
    assert [each.latest for each in found.outcomes] == ["a/1 · resolved"]


@pytest.mark.usefixtures("fast")
async def test_of_many_records_only_those_to_come_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_records, "MOST_EARLIER", 0)
    store = await owned(tmp_path)

    async def commit(shown: Callable[[], Snapshot]) -> None:
        await until(lambda: shown().records)
        assert await store.commit(EPISODES[1])

    found, notes = await seen(followed(store.uri), commit)

    assert found.records is not None
    assert sum(found.records.reward_bins) == 1
    assert found.failures == (Count("ImagePull", 1),)
    (note,) = notes
    assert note.endswith(f"from now on; all 1 records: swe-rollout watch {store.uri}/demo")


@pytest.mark.usefixtures("fast")
async def test_records_of_another_namespace_are_not_shown(tmp_path: Path) -> None:
    store = await owned(tmp_path, namespace="other")

    async def wait(shown: Callable[[], Snapshot]) -> None:
        del shown
        await asyncio.sleep(0.1)

    found, _ = await seen(followed(store.uri), wait)

    assert found.records is None


@pytest.mark.usefixtures("fast")
async def test_a_job_without_a_plan_yet_is_read_once_it_has_one(tmp_path: Path) -> None:
    async def begin(shown: Callable[[], Snapshot]) -> None:
        await asyncio.sleep(0.05)
        await owned(tmp_path)
        await until(lambda: shown().records)

    found, notes = await seen(followed(f"file://{tmp_path}/runs"), begin)

    assert (found.records is None, notes) == (False, [])


async def test_a_store_that_can_not_be_read_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_display, "REMOTE_POLL_S", 0.001)
    monkeypatch.setattr(job_records, "_SLOWER", 0.001)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    job, notes = followed("s3://rollouts"), list[str]()
    records = JobRecords(job, notes.append)
    async with records.reading():
        await until(lambda: notes)
        await asyncio.sleep(0.2)

    (note,) = notes
    assert note.startswith("turns, groups and single rewards are not shown: the store can't")
    assert records.added_to(job_snapshot(WatchedJob(job))).records is None


@pytest.mark.usefixtures("fast")
async def test_plain_lines_name_the_episodes_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_display, "say", pytest.fail)
    store = await owned(tmp_path)
    console = Console(file=io.StringIO(), width=400)
    job = followed(store.uri)
    assert isinstance(console.file, io.StringIO)
    text = console.file
    async with _open_job_display(DisplayKind.PLAIN, WatchedJob(job), console=console) as update:
        update(job)
        await until(lambda: "planned" in text.getvalue())
        assert await store.commit(EPISODES[1])

    words = [line.split()[0] for line in text.getvalue().splitlines()]
    assert words == ["state", "planned", "episode_done", "progress"]
    assert "episode=demo/a/1 outcome=finished verdict=resolved" in text.getvalue()
