"""The live view on a real pseudo-terminal: it stays in its place, and leaves the terminal clean."""

from __future__ import annotations

import asyncio
import io
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from checkout import ROOT
from swe_rollout.cli.live_screen import _Screen, live_screen, resolve_display
from swe_rollout.cli.options import DisplayKind
from swe_rollout.live.progress import LiveProgress, LiveTitle
from swe_rollout.live.snapshot import Snapshot
from unit.cli.run_parts import ended
from unit.cli.terminal_parts import Child, Terminal

TITLE = LiveTitle("rolloutjob/demo", ("sglang",), group_size=lambda _: 4)
CODE = f"""
import asyncio, sys
import typer
sys.path.insert(0, {str(ROOT / "tests")!r})
from unit.cli.run_parts import ended, episode, turn
from swe_rollout.cli.interrupt import run_async
from swe_rollout.cli.options import DisplayKind
from swe_rollout.cli.output import say, stderr_console
from swe_rollout.cli.run_display import open_run_display
from swe_rollout.live.progress import LiveTitle

async def work():
    title = LiveTitle("rolloutjob/demo", ("sglang",), group_size=lambda _: 4)
    async with open_run_display(DisplayKind.AUTO, title=title, console=stderr_console()) as shown:
        shown.planned(1000, 0)
        for number in range(1000):
            shown.turn(episode(number), turn(number / 10))
            shown.done(ended(number, number % 2))
            if number % 50 == 0:
                say(f"note {{number}}")
                print("printed", number)
            await asyncio.sleep(0.01 if number < WAIT_AT else 60)

try:
    run_async(work(), on_note=say)
except typer.Exit as ended:
    sys.exit(ended.exit_code)
"""

SHELL = """
import os, signal, subprocess, sys

def wait():
    signal.sigwait([signal.SIGUSR1])

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
job = subprocess.Popen([sys.executable, "-c", CODE], process_group=0)
wait()
os.kill(job.pid, signal.SIGTSTP)
_, status = os.waitpid(job.pid, os.WUNTRACED)
print("shell: stopped by", signal.Signals(os.WSTOPSIG(status)).name, flush=True)
wait()
os.kill(job.pid, signal.SIGCONT)
wait()
os.kill(job.pid, signal.SIGINT)
sys.exit(job.wait())
"""


def child(*, wait_at: int, columns: int = 100, rows: int = 30) -> Child:
    return Child(CODE.replace("WAIT_AT", str(wait_at)), columns=columns, rows=rows)


@contextmanager
def screen_of(progress: LiveProgress, terminal: Terminal) -> Iterator[tuple[Console, _Screen]]:
    console = Console(
        file=io.StringIO(),
        force_terminal=True,
        width=terminal.columns,
        height=terminal.rows,
        color_system=None,
        soft_wrap=True,
    )
    screen = _Screen(console, progress.snapshot)
    console.push_render_hook(screen)
    yield console, screen
    console.pop_render_hook()


def show(console: Console, terminal: Terminal) -> None:
    assert isinstance(console.file, io.StringIO)
    terminal.feed(console.file.getvalue().replace("\n", "\r\n"))
    console.file.seek(0)
    console.file.truncate()


def has_cursor(child: Child) -> bool:
    return child.terminal.has_cursor


def frames(lines: list[str]) -> int:
    return sum("rolloutjob/demo" in line for line in lines)


def test_the_view_stays_in_place_below_what_is_printed_and_ends_cleanly_on_interrupt() -> None:
    on = child(wait_at=120)
    on.read_until("121/1000")
    assert not has_cursor(on)
    assert frames(on.terminal.lines) == 1
    on.interrupt()
    assert on.end() == 130

    assert has_cursor(on)
    text = on.terminal.lines
    assert frames(text) == 1
    said = [line.strip() for line in text if line.startswith(("note", "printed"))]
    assert said == ["note 0", "printed 0", "note 50", "printed 50", "note 100", "printed 100"]
    head = next(n for n, line in enumerate(text) if "rolloutjob/demo" in line)
    assert "stopping: cleaning up" in "\n".join(text[:head])
    assert text[-1].startswith("stopped")
    assert "121/1000" in "\n".join(text[head:])


def test_a_stopped_view_gives_the_cursor_back_and_comes_again_below_the_shell() -> None:
    on = Child(SHELL.replace("CODE", repr(CODE.replace("WAIT_AT", "20"))), columns=100, rows=60)
    on.read_until("21/1000")
    assert not has_cursor(on)
    on.process.send_signal(signal.SIGUSR1)  # the shell sees ^Z
    on.read_until("shell: stopped by SIGTSTP")
    assert has_cursor(on)
    before = on.terminal.screen.index("shell: stopped by SIGTSTP")

    on.process.send_signal(signal.SIGUSR1)  # fg
    on.read_until("21/1000")
    on.read_until("21/1000")
    assert not has_cursor(on)
    assert frames(on.terminal.lines[:before]) == 1
    assert frames(on.terminal.lines[before:]) == 1
    on.process.send_signal(signal.SIGUSR1)  # ^C
    assert on.end() == 130
    assert has_cursor(on)


def test_a_window_that_changes_its_size_shows_one_view_of_that_size() -> None:
    on = child(wait_at=200, columns=120, rows=40)
    on.read_until("/1000")
    on.resize(60, 12)
    on.read_until("201/1000")
    on.interrupt()
    assert on.end() == 130

    last = [n for n, line in enumerate(on.terminal.lines) if "rolloutjob/demo" in line][-1]
    view = on.terminal.lines[last:-1]
    assert max(map(len, view)) < 60
    assert len(view) <= 12


@given(
    notes=st.lists(st.sampled_from(["", "short", "x" * 250, "two\nlines"]), max_size=12),
    columns=st.integers(20, 120),
    rows=st.integers(3, 40),
)
def test_whatever_is_printed_meanwhile_the_screen_ends_with_one_whole_view(
    notes: list[str], columns: int, rows: int
) -> None:
    terminal, progress = Terminal(columns, rows), LiveProgress(TITLE)
    with screen_of(progress, terminal) as (console, screen):
        screen.refresh()
        show(console, terminal)
        height = len(terminal.lines)
        for number, note in enumerate(notes):
            progress.done(ended(number, 1.0))
            if note:
                console.print(Text(note))
            screen.refresh()
            show(console, terminal)

    printed = sum(-(-len(part) // columns) for note in notes if note for part in note.split("\n"))
    assert len(terminal.lines) == height + printed
    assert all(len(line) < columns for line in terminal.lines[printed:])


@given(before=st.integers(20, 120), now=st.integers(20, 120))
def test_lines_that_a_narrower_window_has_wrapped_are_replaced_too(before: int, now: int) -> None:
    wide, narrow = Terminal(before, 50), Terminal(now, 50)
    with screen_of(LiveProgress(TITLE), wide) as (console, screen):
        console.print(Text("first"))
        show(console, wide)
        for line in wide.lines:  # the terminal wraps what it shows
            text = line.rstrip()
            parts = [text[at : at + now] for at in range(0, max(len(text), 1), now)]
            narrow.lines += parts
        narrow.row = len(narrow.lines)
        console.width = now
        screen.refresh()
        show(console, narrow)

    assert narrow.lines[0] == "first"
    assert "OUTCOME" in "\n".join(narrow.lines)
    heads = [line for line in narrow.lines if line.startswith("episodes")]
    assert len(heads) == 1


def test_what_another_thread_prints_takes_no_snapshot_there() -> None:
    taken: list[str] = []
    progress = LiveProgress(TITLE)

    def snapshot() -> Snapshot:
        taken.append(threading.current_thread().name)
        return progress.snapshot()

    console = Console(file=io.StringIO(), force_terminal=True, width=80, height=24)
    screen = _Screen(console, snapshot)
    console.push_render_hook(screen)
    screen.refresh()
    other = threading.Thread(target=lambda: console.print("from there"))
    other.start()
    other.join()

    assert taken == [threading.current_thread().name] * 2
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().count("rolloutjob/demo") == 2


async def test_what_is_no_terminal_gets_the_last_state_alone() -> None:
    console = Console(file=io.StringIO(), width=80, height=24)
    progress = LiveProgress(TITLE)
    async with live_screen(console, progress.snapshot, interval_s=0.001):
        progress.planned(3, 0)
        await asyncio.sleep(0.05)
        progress.done(ended(0, 1.0))

    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert (text.count("rolloutjob/demo"), "1/3" in text, "\x1b" in text) == (1, True, False)


@pytest.mark.parametrize(
    ("terminal", "term", "encoding", "shown"),
    [
        (True, "xterm", "utf-8", DisplayKind.RICH),
        (True, "dumb", "utf-8", DisplayKind.PLAIN),
        (True, "xterm", "ascii", DisplayKind.PLAIN),
        (False, "xterm", "utf-8", DisplayKind.PLAIN),
    ],
)
def test_lines_are_plain_where_a_view_can_not_be_drawn(
    *, terminal: bool, term: str, encoding: str, shown: DisplayKind, tmp_path: Path
) -> None:
    with (tmp_path / "out").open("w", encoding=encoding) as stream:
        console = Console(file=stream, force_terminal=terminal, _environ={"TERM": term})
        assert resolve_display(DisplayKind.AUTO, console) is shown
        assert resolve_display(DisplayKind.NONE, console) is DisplayKind.NONE
