"""The error of these scripts: what happened, why, and how to fix it."""

from __future__ import annotations

import sys
import time

PREREQUISITE = 3
"""Exit code when something has to be installed or started first."""


class ScriptError(Exception):
    """A failure whose text is for the user at the terminal."""

    def __init__(self, what: str, *, why: str = "", fix: str = "", exit_code: int = 1) -> None:
        parts = [what, *([f"  why: {why}"] if why else []), *([f"  fix: {fix}"] if fix else [])]
        super().__init__("\n".join(parts))
        self.exit_code = exit_code


class Progress:
    """Prints progress on stderr; stdout is for results."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._live = False

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._start

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self._write(f"{self.seconds:6.1f}s  {text}", end="\n")
        self._live = False

    def tick(self, text: str) -> None:
        """Print a line that the next one replaces; same as `say` if stderr is not a terminal."""
        if not sys.stderr.isatty():
            self.say(text)
            return
        self._write(f"{self.seconds:6.1f}s  {text}", end="")
        self._live = True

    def _write(self, text: str, *, end: str) -> None:
        sys.stderr.write(("\r\x1b[K" if self._live else "") + text + end)
        sys.stderr.flush()
