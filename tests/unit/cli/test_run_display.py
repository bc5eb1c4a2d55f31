"""Displays of a run in this process."""

from __future__ import annotations

import asyncio

import structlog

from swe_rollout.cli.logging_setup import configure_logs
from swe_rollout.cli.options import DisplayKind
from swe_rollout.cli.run_display import (
    LINES_AT_ONCE,
    LINES_PER_S,
    PlainRunLines,
    open_run_display,
)
from swe_rollout.errors import StoreError
from swe_rollout.events import Phase
from swe_rollout.live.progress import LiveTitle
from unit.cli.run_parts import FAILURE, ended, episode, open_screen

TITLE = LiveTitle("rolloutjob/demo", ("scripted gold",))


async def test_without_a_terminal_each_episode_is_one_line() -> None:
    screen = open_screen()
    async with open_run_display(DisplayKind.AUTO, title=TITLE, console=screen.console) as progress:
        progress.planned(3, 1)
        progress.earlier(ended(2, 0.0))
        progress.phase(episode(0), Phase.START)
        progress.retried(episode(0), FAILURE, 1)
        progress.done(ended(0, 1.0))
        progress.done(ended(1, None, failure=FAILURE))

    assert screen.lines == [
        "planned episodes=3 committed=1",
        'retried episode=demo/sqlparse/0 attempt=1 failure="the pod␛[2J was evicted"',
        (
            "episode_done episode=demo/sqlparse/0 outcome=submitted verdict=resolved reward=1"
            ' turns=1 tokens=2 time="2.5 s"'
        ),
        (
            "episode_done episode=demo/sqlparse/1 outcome=sandbox_failed turns=1 tokens=2"
            ' time="2.5 s" failure="the pod␛[2J was evicted"'
        ),
        (
            "progress done=3/3 running=0 grading=0 resolved=1 masked=1 mean_reward=0.50"
            ' masked_share=33% elapsed="0 s"'
        ),
    ]


async def test_a_silent_display_prints_nothing() -> None:
    screen = open_screen(terminal=True)
    async with open_run_display(DisplayKind.NONE, title=TITLE, console=screen.console) as progress:
        progress.planned(1, 0)
        progress.done(ended(0, 1.0))

    assert screen.text == ""


async def test_log_lines_stand_above_the_live_screen_and_are_not_obeyed() -> None:
    screen = open_screen(terminal=True)
    configure_logs(lambda: screen.console, verbosity=0)
    try:
        async with open_run_display(DisplayKind.AUTO, title=TITLE, console=screen.console):
            await asyncio.sleep(0)
            structlog.get_logger().warning("sandbox_lost", episode="demo/a/0", said="\x1b[2J")
            structlog.get_logger().info("not_shown")
    finally:
        structlog.reset_defaults()

    (line,) = [line for line in screen.lines if "sandbox_lost" in line]
    assert "level=warning event=sandbox_lost episode=demo/a/0" in line
    assert "\x1b[2J" not in screen.text
    assert "not_shown" not in screen.text
    assert "rolloutjob/demo" in screen.text


def test_episodes_that_end_too_fast_have_no_line_and_are_counted() -> None:
    screen, clock = open_screen(), [0.0]
    plain = PlainRunLines(screen.console, TITLE, clock=lambda: clock[0])
    for sample in range(LINES_AT_ONCE + 50):
        plain.done(ended(sample, 1.0))
    plain.print_summary()
    clock[0] += 2.0
    for sample in range(50):
        plain.done(ended(sample, 1.0))
    plain.print_summary()

    events = [line.split()[0] for line in screen.lines]
    allowed = 2 * int(LINES_PER_S)
    assert events == [
        *["episode_done"] * LINES_AT_ONCE,
        "progress",
        *["episode_done"] * allowed,
        "progress",
    ]
    assert screen.lines[LINES_AT_ONCE].endswith("lines_left_out=50")
    assert screen.lines[-1].endswith(f"lines_left_out={50 - allowed}")


def test_nothing_is_said_before_a_plan_and_nothing_twice_at_the_end() -> None:
    screen = open_screen(width=300)
    plain = PlainRunLines(screen.console)
    plain.print_summary()
    assert screen.lines == []
    plain.planned(1, 0)
    plain.done(ended(0, 1.0))
    plain.print_summary()
    plain.print_last_summary()
    assert [line.split()[0] for line in screen.lines] == ["planned", "episode_done", "progress"]


def test_a_full_disk_is_on_each_progress_line_until_something_is_committed() -> None:
    screen = open_screen()
    lines = PlainRunLines(screen.console, TITLE)
    lines.planned(2, 0)
    lines.store_failed(StoreError("the store can't write demo", why="No space left on device"))
    lines.print_summary()
    lines.print_summary()
    lines.done(ended(0, 1.0))
    lines.print_summary()

    full = 'waiting="the store can\'t write demo: No space left on device"'
    _, first, second, _, last = screen.lines
    assert first.endswith(full)
    assert second.endswith(full)
    assert "waiting" not in last
