"""Keep a live view at the bottom of a terminal, below other output.

Each frame overwrites the previous one line by line in a single write, so that nothing flickers. It
is never taller than the window, so it never scrolls. If the window has become narrower, the
terminal has wrapped the last frame's lines, and they are counted as now displayed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from math import ceil
from typing import TYPE_CHECKING, Final, TextIO, cast

from rich.console import RenderHook
from rich.control import Control
from rich.file_proxy import FileProxy
from rich.segment import ControlType, Segment

from swe_rollout.cli.live_layout import draw
from swe_rollout.cli.options import DisplayKind
from swe_rollout.live.progress import every

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderResult
    from rich.text import Text

    from swe_rollout.live.snapshot import Snapshot

SCREEN_S: Final = 0.25
"""Seconds between two frames."""
SUMMARY_S: Final = 10.0
"""Seconds between two summary lines of a plain display."""
_BEGIN: Final = "\x1b[?2026h"
"""Synchronised output: terminals that support it show everything up to `_END` at once."""
_END: Final = "\x1b[?2026l"
_ERASE_LINE: Final = "\x1b[K"
_ERASE_BELOW: Final = "\x1b[J"


def resolve_display(kind: DisplayKind, console: Console) -> DisplayKind:
    """Resolve AUTO to RICH on a terminal that can show it, and to PLAIN elsewhere."""
    if kind is not DisplayKind.AUTO:
        return kind
    is_able = console.is_terminal and not console.is_dumb_terminal
    return DisplayKind.RICH if is_able and _has_bars(console) else DisplayKind.PLAIN


@asynccontextmanager
async def live_screen(
    console: Console, snapshot: Callable[[], Snapshot], *, interval_s: float = SCREEN_S
) -> AsyncIterator[None]:
    """Show snapshots every `interval_s` while the block runs, and the last one at its end.

    If the console is not a terminal, only the last one is shown.
    """
    if not console.is_terminal:
        yield
        width, height = console.size
        console.print(*draw(snapshot(), width=width, height=height), sep="\n")
        return
    screen = _Screen(console, snapshot)
    console.show_cursor(show=False)
    console.push_render_hook(screen)
    try:
        with _printing_above(console), _stopping(console, screen):
            screen.refresh()
            async with every(interval_s, screen.refresh):
                yield
            screen.refresh()
    finally:
        console.pop_render_hook()
        console.show_cursor(show=True)


@contextmanager
def _stopping(console: Console, screen: _Screen) -> Iterator[None]:
    """Release the terminal while ^Z stops the process, and then show the view again."""
    loop = asyncio.get_running_loop()

    def listen() -> None:
        loop.add_signal_handler(signal.SIGTSTP, stop)
        loop.add_signal_handler(signal.SIGCONT, go_on)

    def stop() -> None:
        _listen_no_more(loop)
        console.show_cursor(show=True)
        # The shell expects to see the signal that stopped its job. This returns after `fg`.
        os.kill(os.getpid(), signal.SIGTSTP)
        go_on()
        listen()

    def go_on() -> None:
        console.show_cursor(show=False)
        screen.begin_anew()

    if signal.getsignal(signal.SIGTSTP) is not signal.SIG_DFL:  # ignored, or somebody else's
        yield
        return
    # Only the main thread handles signals.
    with suppress(ValueError, RuntimeError, NotImplementedError):
        listen()
    try:
        yield
    finally:
        _listen_no_more(loop)


def _listen_no_more(loop: asyncio.AbstractEventLoop) -> None:
    for number in (signal.SIGTSTP, signal.SIGCONT):
        loop.remove_signal_handler(number)


class _Screen(RenderHook):
    """Keeps a frame below everything that its console prints."""

    def __init__(self, console: Console, snapshot: Callable[[], Snapshot]) -> None:
        self._console = console
        self._snapshot = snapshot
        self._latest = snapshot()
        self._lock = threading.Lock()
        self._shown: Sequence[int] = ()
        """The width in cells of each line of the frame on the screen."""
        self._width = 0

    def refresh(self) -> None:
        """Show the current snapshot; call it on the thread that counts."""
        self._latest = self._snapshot()
        self._console.print(Control())

    def begin_anew(self) -> None:
        """Show a new frame below others' output, leaving the previous one as it is."""
        with self._lock:
            self._shown = ()
        self.refresh()

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Print in place of the last frame, and draw a frame below.

        Since any thread may print, this takes no new snapshot.
        """
        with self._lock:
            width, height = self._console.size
            rows = _rows_on_screen(self._shown, before=self._width, now=width)
            lines = draw(self._latest, width=width, height=height)
            self._shown, self._width = [line.cell_len for line in lines], width
        is_refresh = all(isinstance(each, Control) for each in renderables)
        start = f"{_BEGIN}\r" + (f"\x1b[{rows}A" if rows else "")
        above = [] if is_refresh else [_Raw(_ERASE_BELOW), *renderables]
        return [_Raw(start), *above, _Frame(lines), _Raw(_ERASE_BELOW + _END)]


class _Raw:
    """Control codes for a terminal; nothing elsewhere."""

    def __init__(self, codes: str) -> None:
        self._codes = codes

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console, options
        yield Segment(self._codes, None, [(ControlType.CURSOR_UP, 0)])


class _Frame:
    """Lines that overwrite their rows on the screen."""

    def __init__(self, lines: Sequence[Text]) -> None:
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del options
        for line in self._lines:
            yield from line.render(console)
            yield Segment(_ERASE_LINE, None, [(ControlType.ERASE_IN_LINE, 0)])
            yield Segment.line()


def _rows_on_screen(cells: Sequence[int], *, before: int, now: int) -> int:
    """Count the rows that a frame takes after the window's width has changed."""
    if now >= before:
        return len(cells)
    return sum(max(1, ceil(each / max(now, 1))) for each in cells)


@contextmanager
def _printing_above(console: Console) -> Iterator[None]:
    """Send terminal output through the console, above the frame."""
    before = sys.stdout, sys.stderr
    proxied = [_proxied(console, stream) for stream in before]
    sys.stdout, sys.stderr = proxied
    try:
        yield
    finally:
        for stream in proxied:
            with suppress(OSError, ValueError):
                stream.flush()
        sys.stdout, sys.stderr = before


def _proxied(console: Console, stream: TextIO) -> TextIO:
    is_terminal = console.is_terminal and stream.isatty()
    return cast("TextIO", FileProxy(console, stream)) if is_terminal else stream


def _has_bars(console: Console) -> bool:
    try:
        "▁█━·–…".encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True
