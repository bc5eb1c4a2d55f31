"""A small terminal: what a program on a pseudo-terminal leaves on its screen."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from dataclasses import dataclass, field
from pathlib import Path

_UNFINISHED = re.compile(r"\x1b(\[[?0-9;]*)?\Z")
_TOKEN = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|\x1b\].*?\x07|(\r)|(\n)|(\x1b)|(.)", re.DOTALL)


@dataclass
class Terminal:
    """A screen of characters. It knows the codes that programs here use, and refuses others."""

    columns: int
    rows: int
    lines: list[str] = field(default_factory=list)
    """All that was ever on it: the last `rows` of them are the screen."""
    row: int = 0
    column: int = 0
    has_cursor: bool = True
    _rest: str = ""

    def feed(self, text: str) -> None:
        """Obey what a program writes; a code may come in two pieces."""
        text = self._rest + text
        unfinished = _UNFINISHED.search(text)
        self._rest = unfinished[0] if unfinished else ""
        for match in _TOKEN.finditer(text[: len(text) - len(self._rest)]):
            codes, letter, home, newline, escape, character = match.groups()
            if letter is not None:
                self._obey(codes, letter)
            elif home:
                self.column = 0
            elif newline:
                self.row += 1
            elif escape:
                raise AssertionError(f"unknown escape in {text!r}")
            elif character:
                self._put(character)

    @property
    def screen(self) -> list[str]:
        """The rows of the window, without the blanks at their ends."""
        return [line.rstrip() for line in self.lines[-self.rows :]]

    @property
    def _top(self) -> int:
        return max(len(self.lines) - self.rows, 0)

    def _put(self, character: str) -> None:
        if self.column >= self.columns:
            self.row, self.column = self.row + 1, 0
        self._reach()
        line = self.lines[self.row].ljust(self.column)
        self.lines[self.row] = line[: self.column] + character + line[self.column + 1 :]
        self.column += 1

    def _obey(self, codes: str, letter: str) -> None:
        self._reach()
        match letter, codes:
            case "A", count:
                self.row = max(self.row - int(count or 1), self._top)
            case "K", "" | "0":
                self.lines[self.row] = self.lines[self.row][: self.column]
            case "J", "" | "0":
                self.lines[self.row] = self.lines[self.row][: self.column]
                del self.lines[self.row + 1 :]
            case (("h" | "l"), "?25"):
                self.has_cursor = letter == "h"
            case (("h" | "l"), "?2026") | ("m", _):
                pass
            case _:
                raise AssertionError(f"unknown code {codes}{letter}")

    def _reach(self) -> None:
        while len(self.lines) <= self.row:
            self.lines.append("")


class Child:
    """A Python program on a pseudo-terminal."""

    def __init__(self, code: str, *, columns: int, rows: int, cwd: Path | None = None) -> None:
        self._here, there = pty.openpty()
        self.terminal = Terminal(columns, rows)
        self.resize(columns, rows)
        self.written = ""
        environment = {**os.environ, "TERM": "xterm-256color", "PYTHONUTF8": "1"}
        for name in ("COLUMNS", "LINES", "NO_COLOR"):
            environment.pop(name, None)
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=there,
            stdout=there,
            stderr=there,
            cwd=cwd,
            env=environment,
            start_new_session=True,
        )
        os.close(there)

    def resize(self, columns: int, rows: int) -> None:
        """Change the size of the window; what it shows is not wrapped anew."""
        fcntl.ioctl(self._here, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.terminal.columns, self.terminal.rows = columns, rows

    def read_until(self, words: str, *, limit_s: float = 60.0) -> None:
        """Show what the program writes until `words` were written from now on."""
        start, deadline = len(self.written), time.monotonic() + limit_s
        while words not in self.written[start:]:
            assert self._read(deadline), f"ended without {words!r}: {self.written[start:]!r}"

    def interrupt(self) -> None:
        """Type ^C."""
        self.process.send_signal(signal.SIGINT)

    def end(self, *, limit_s: float = 60.0) -> int:
        """Show the rest; return the exit code."""
        deadline = time.monotonic() + limit_s
        while self._read(deadline):
            pass
        os.close(self._here)
        return self.process.wait(timeout=limit_s)

    def _read(self, deadline: float) -> bool:
        """Show what is written next; False at the end."""
        ready, _, _ = select.select([self._here], [], [], max(deadline - time.monotonic(), 0))
        assert ready, f"nothing more came: {self.written[-2000:]!r}"
        try:
            data = os.read(self._here, 1 << 16)
        except OSError:  # the other end is closed
            return False
        while True:  # a character may be in two pieces
            try:
                text = data.decode()
                break
            except UnicodeDecodeError:
                data += os.read(self._here, 1)
        self.written += text
        self.terminal.feed(text)
        return bool(data)
