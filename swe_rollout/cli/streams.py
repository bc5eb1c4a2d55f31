"""stdout and stderr as other tools have them, also when a reader has gone or a disk is full.

A write to a pipe that nobody reads interrupts the work, so that it cleans up, and the process then
ends by SIGPIPE, which a shell shows as 141.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

from swe_rollout.errors import SweRolloutError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class OutputError(SweRolloutError):
    """The result can't be written to where stdout goes, such as a full disk."""


class _Pipe(io.FileIO):
    """A standard stream that interrupts the work when its reader has gone."""

    gone = False
    """Whether the reader of any stream has gone."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data) or 0
        except BrokenPipeError:
            _Pipe.gone = True
            self._discard()
            signal.raise_signal(signal.SIGINT)
            return memoryview(data).nbytes
        except OSError as error:
            self._discard()
            raise OutputError(
                "the output can't be written",
                why=error.strerror or str(error),
                fix="redirect it elsewhere",
            ) from error

    def _discard(self) -> None:
        """Drop what is written from now on, also by the interpreter's own last flush."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)


def guard_streams() -> None:
    """Guard stdout and stderr of this process, unless a test has replaced them."""
    if sys.stdout is sys.__stdout__:
        sys.stdout = _guarded(sys.stdout, 1)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _guarded(sys.stderr, 2)


def reader_is_gone() -> bool:
    """Whether somebody closed the other end of stdout or stderr, as `head` does."""
    return _Pipe.gone


def die_by_sigpipe() -> NoReturn:
    """End as every other tool does whose reader has gone."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGPIPE)
    os._exit(128 + signal.SIGPIPE)


def _guarded(stream: TextIO | None, number: int) -> TextIO:
    if stream is None:  # closed by the caller: `>&-`
        return Path(os.devnull).open("w", encoding="utf-8")
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_Pipe(number, "w", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        # With PYTHONUNBUFFERED a stream writes through instead, in pieces of lines.
        line_buffering=bool(stream.line_buffering or getattr(stream, "write_through", False)),
    )
