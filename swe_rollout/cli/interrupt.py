"""Handle ^C and SIGTERM: the first stops the work cleanly, the second exits immediately."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TypeVar

import typer

T = TypeVar("T")
INTERRUPTED = 130
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_STDERR = 2
_LAST_WORDS = b"exiting immediately; whatever is still running ends at its own deadline\n"
_SHOW_CURSOR = b"\x1b[?25h"
_terminated = threading.Event()


@dataclass(frozen=True, slots=True)
class InterruptMessages:
    """Messages for the user at the first ^C, and after the work has stopped because of it."""

    stopping: str = "stopping: cleaning up; press ^C again to exit immediately"
    stopped: str = "stopped"


STOPPED = InterruptMessages()


def run_async(
    work: Coroutine[object, object, T],
    *,
    on_note: Callable[[str], None],
    messages: InterruptMessages = STOPPED,
) -> T:
    """Run `work` to its end. On ^C or SIGTERM, cancel it, let it clean up and exit with 130."""
    interruption = _Interruption(on_note, messages)
    with _handling(interruption.receive):
        if was_terminated():
            interruption.receive(signal.SIGTERM, None)
        try:
            return asyncio.run(interruption.run(work))
        except _StoppedError:
            raise typer.Exit(INTERRUPTED) from None


def terminate_as_interrupt() -> None:
    """Treat SIGTERM like ^C from now on: both clean up and end in an exit code."""

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        record_termination()
        signal.raise_signal(signal.SIGINT)

    if _receives_signals():
        signal.signal(signal.SIGTERM, on_signal)


def record_termination() -> None:
    """Remember that the process was asked to end, whatever becomes of its exceptions."""
    _terminated.set()


def was_terminated() -> bool:
    """Whether SIGTERM arrived as ^C; if work still runs, the exception was lost.

    Exceptions in weak-reference callbacks, which imports use, are discarded.
    """
    return _terminated.is_set()


def ignore_signals() -> None:
    """Ignore ^C and SIGTERM from now on: the process is about to exit."""
    if _receives_signals():
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)


class _StoppedError(Exception):
    """A signal cancelled the work."""


class _Interruption:
    """Cancels work at the first signal, and ends the process at the second one.

    The handlers are the interpreter's, not the event loop's, so they work until the loop is closed,
    which waits for its threads.
    """

    def __init__(self, on_note: Callable[[str], None], messages: InterruptMessages) -> None:
        self._on_note = on_note
        self._messages = messages
        self._received = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[object] | None = None

    async def run(self, work: Coroutine[object, object, T]) -> T:
        """Run the work. Raises _StoppedError if a signal cancelled it."""
        self._loop = asyncio.get_running_loop()
        self._task = task = asyncio.ensure_future(work)
        if self._received:
            self._stop()
        try:
            return await task
        except asyncio.CancelledError:
            if not self._received:
                raise
            if self._messages.stopped:
                self._on_note(self._messages.stopped)
            raise _StoppedError from None

    def receive(self, _number: int, _frame: FrameType | None) -> None:
        """Handle a signal. It may interrupt any instruction, so printing is left to the loop."""
        is_over = self._task is not None and self._task.done()
        if self._received or is_over:
            # A buffered stream may be in the middle of writing.
            os.write(_STDERR, (_SHOW_CURSOR if os.isatty(_STDERR) else b"") + _LAST_WORDS)
            os._exit(INTERRUPTED)
        self._received = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        self._on_note(self._messages.stopping)
        if self._task is not None:
            self._task.cancel()


@contextmanager
def _handling(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle ^C and SIGTERM inside the block."""
    if not _receives_signals():
        yield
        return
    before = [(number, signal.signal(number, handler)) for number in _SIGNALS]
    try:
        yield
    finally:
        for number, earlier in before:
            signal.signal(number, earlier)


def _receives_signals() -> bool:
    """Whether this is the thread on which handlers run and can be set."""
    return threading.current_thread() is threading.main_thread()
