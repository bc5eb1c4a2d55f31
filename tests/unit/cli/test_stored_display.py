"""`watch` of a job that another process writes into a store."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from rich.console import Console

from swe_rollout.cli import stored_display
from swe_rollout.cli.options import DisplayKind
from swe_rollout.cli.stored_display import WatchedStore, follow_stored
from swe_rollout.live.snapshot import Count, Groups
from swe_rollout.store.journals import JournalRef
from swe_rollout.store.layout import JobRef
from swe_rollout.store.store import Store
from unit.cli.cli_parts import run_cli
from unit.cli.run_parts import open_screen
from unit.cli.store_parts import EPISODES, damage, stored


def store_of(address: str) -> Store:
    return Store.open(JobRef.parse(address).store_uri)


async def test_what_the_store_holds_is_counted_and_speed_is_of_what_comes(tmp_path: Path) -> None:
    address = await asyncio.to_thread(stored, tmp_path, EPISODES[:1])
    store, clock = store_of(address), [100.0]
    assert await store.journals("demo").create(JournalRef(EPISODES[1].episode, 1, 0), 0, b"x")
    watched = WatchedStore(store, "demo", clock=lambda: clock[0])

    assert not await watched.poll()
    before = watched.snapshot()
    assert (before.total, before.committed, before.episodes_per_min) == (2, 1, None)
    assert before.phases == (Count("queued", 0), Count("begun", 1))
    assert before.idle_s is not None
    assert before.records is not None
    assert before.records.turns_per_s == 0.0
    assert before.records.groups == Groups(None, 0, 0)
    assert before.records.turns.p50_s == pytest.approx(1.5, rel=0.04)

    clock[0] += 30.0
    assert await store.commit(EPISODES[1])
    await store.journals("demo").remove([EPISODES[1].episode])
    assert await watched.poll()
    after = watched.snapshot()
    assert (after.committed, after.idle_s, after.phases[1]) == (2, 0.0, Count("begun", 0))
    assert after.episodes_per_min == pytest.approx(2.0)
    assert after.records is not None
    assert after.records.groups == Groups(None, complete=1, with_signal=0)


async def test_watching_ends_with_the_last_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_display, "LOCAL_POLL_S", 0.01)
    address = await asyncio.to_thread(stored, tmp_path, EPISODES[:1])
    screen = open_screen(width=300)
    watching = asyncio.create_task(
        follow_stored(JobRef.parse(address), display=DisplayKind.PLAIN, console=screen.console)
    )
    while "planned" not in screen.text:  # noqa: ASYNC110 - the display has no event
        await asyncio.sleep(0.01)
    assert await store_of(address).commit(EPISODES[1])

    summary = await watching

    assert (summary.committed, summary.resolved) == (2, 2)
    assert [line.split()[0] for line in screen.lines] == ["planned", "episode_done", "progress"]
    assert screen.lines[0] == "planned episodes=2 committed=1"
    assert "episode=demo/a/1 outcome=finished verdict=resolved reward=1" in screen.lines[1]


async def test_a_damaged_record_does_not_keep_watching_for_ever(tmp_path: Path) -> None:
    address = await asyncio.to_thread(stored, tmp_path)
    damage(address, 0)
    summary = await follow_stored(
        JobRef.parse(address), display=DisplayKind.NONE, console=Console(quiet=True)
    )
    assert (summary.committed, len(summary.damaged)) == (1, 1)


def test_watch_prints_the_result_of_a_stored_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    address = stored(tmp_path)
    assert run_cli(monkeypatch, "watch", address, "-o", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["committed"], found["instances"][0]["instance"]) == (2, "a")
    assert run_cli(monkeypatch, "watch", f"{tmp_path}/runs/other") == 2
