"""^C and SIGTERM: the first ends the work cleanly and says so, the second leaves at once."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")
INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Words:
    """What a person is told at the first ^C, and when the work has ended because of it."""

    stopping: str = "stopping: cleaning up; once more to leave at once"
    stopped: str = "stopped"


STOPPED = Words()


def run_async(
    work: Coroutine[object, object, T], *, on_note: Callable[[str], None], words: Words = STOPPED
) -> T:
    """Run `work` to its end; when a person or the system stops it, end it cleanly, exit 130."""
    try:
        return asyncio.run(_guarded(work, on_note, words))
    except _StoppedError:
        raise typer.Exit(INTERRUPTED) from None


class _StoppedError(Exception):
    """The work was cancelled because someone asked for it."""


async def _guarded(
    work: Coroutine[object, object, T], on_note: Callable[[str], None], words: Words
) -> T:
    task = asyncio.ensure_future(work)
    interrupted = False

    def stop() -> None:
        nonlocal interrupted
        if interrupted:
            on_note("left at once; what was started ends by itself at its deadline")
            sys.stderr.flush()
            os._exit(INTERRUPTED)
        interrupted = True
        on_note(words.stopping)
        task.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        return await task
    except asyncio.CancelledError:
        if not interrupted:
            raise
        if words.stopped:
            on_note(words.stopped)
        raise _StoppedError from None
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
