"""The verb `logs`."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from swe_rollout.cli import stored_display
from swe_rollout.cli.job_address import JobLocation, LogFilter, parse_job_name
from swe_rollout.cli.stored_logs import find_stored, print_stored
from swe_rollout.errors import UsageError
from swe_rollout.store.store import Store
from unit.cli.cli_parts import Cli
from unit.cli.store_parts import EPISODES, damage, stored


@pytest.mark.parametrize(
    ("address", "line", "matches"),
    [
        ("demo", "level=info event=anything", True),
        ("demo/a__b-1/0", "event=episode_failed episode=demo/a__b-1/0 attempt=1", True),
        ("ns/demo/a__b-1/0", 'event=x episode="demo/a__b-1/0"', True),
        ("demo/a__b-1/0", '{"episode": "demo/a__b-1/0", "event": "x"}', True),
        ("demo/a__b-1/0", "event=x episode=demo/a__b-1/01", False),
        ("demo/a__b-1/0", "event=x episode=other-demo/a__b-1/0", False),
        ("demo/a__b-1/0", "event=x episode=demo/a__b-1/0.5", False),
        ("demo/a__b-1/0", "event=drained", False),
    ],
)
def test_logs_of_an_episode_are_the_lines_with_its_whole_address(
    address: str, line: str, *, matches: bool
) -> None:
    wanted = LogFilter.parse(address)

    assert parse_job_name(wanted.job, JobLocation()).name == "demo"
    assert wanted.matches(line) is matches


def test_the_log_of_a_stored_job_is_a_line_for_each_episode(tmp_path: Path, cli: Cli) -> None:
    later, first = EPISODES[0], replace(EPISODES[1], finished_at="2026-01-01T00:00:00.000+00:00")
    lines = cli("logs", stored(tmp_path, [later, first])).out.splitlines()
    assert [line.partition(" ")[0] for line in lines] == [first.finished_at, later.finished_at]
    assert "episode_done episode=demo/a/1 outcome=finished verdict=resolved reward=1" in lines[0]


def test_the_log_of_a_stored_episode_is_a_line_for_each_turn(address: str, cli: Cli) -> None:
    *turns, done = cli("logs", f"{address}/a/1").out.splitlines()
    assert turns[0].startswith(
        "turn episode=demo/a/1 turn=0 calls=bash,bash exit_codes=0,1 finish="
    )
    assert "calls=invalid_json" in turns[1]
    assert " episode_done " in done

    assert "-f waits for it" in cli("logs", f"{address}/a/7", code=2).err
    cli("logs", "file:///none/demo", code=2)


def test_the_log_of_a_stored_job_names_the_records_that_it_can_not_show(
    address: str, cli: Cli
) -> None:
    damage(address, 0)
    told = cli("logs", address)
    assert len(told.out.splitlines()) == 1
    assert f"left out: file://{address}/episodes/a/0/trajectory.json.zst is damaged" in told.err


def test_nobody_waits_for_an_episode_of_a_task_that_the_job_does_not_have(
    address: str, cli: Cli
) -> None:
    told = cli("logs", f"{address}/aa/0", "-f", code=2).err
    assert "demo has no task aa" in told
    assert "did you mean a?" in told


async def test_the_log_of_a_stored_job_is_followed_to_its_last_episode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stored_display, "LOCAL_POLL_S", 0.01)
    address = await asyncio.to_thread(stored, tmp_path, EPISODES[:1])
    found = await find_stored(address)
    assert found is not None
    await print_stored(found, follow=False)
    told = capsys.readouterr()
    assert "demo/a/0" in told.out
    assert "1 episodes are not committed yet" in told.err

    following = asyncio.create_task(print_stored(found, follow=True))
    await asyncio.sleep(0.05)
    assert not following.done()
    assert await Store.open(found.ref.store_uri).commit(EPISODES[1])
    await following
    assert len(capsys.readouterr().out.splitlines()) == 2


async def test_what_no_store_has_may_be_on_a_cluster(tmp_path: Path) -> None:
    address = await asyncio.to_thread(stored, tmp_path)
    episode = await find_stored(f"{address}/a/0")
    assert episode is not None
    assert str(episode.episode) == "demo/a/0"
    assert await find_stored("ns/demo") is None
    assert await find_stored("demo/a/0") is None
    with pytest.raises(UsageError):
        await find_stored(f"file://{tmp_path}/none/demo/a/0")
