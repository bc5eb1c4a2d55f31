"""How the Python supervisor ends a command and waits for its words; the files it reads and writes.

The rules it is written under are told in `main`.
"""

from __future__ import annotations

import errno
import os
import signal
import stat
import time

from swe_rollout.sandbox.supervisor.bytes import Answer, Body, Capture, write_all

RUNNING = "running"
STOPPING = "stopping"
SETTLING = "settling"
TICK_S = 0.1
"""Quiet for so long, what a command has written has arrived."""
SETTLE_S = 1.1
"""The longest wait for that."""
GRACE_S = 1.0
"""Between TERM and KILL."""


class Command:
    """A process group that a request started, and what is known of it."""

    def __init__(self, pid: int, captures: list[Capture], timeout_s: float) -> None:
        self.pid = pid
        self.captures = captures
        self.open = len(captures)
        self.code: int | None = None
        self.state = RUNNING
        self.late = False
        self.due = time.monotonic() + timeout_s
        self.last = 0.0

    def kill(self, number: int) -> bool:
        """Signal the group; False when none of it is left."""
        try:
            os.killpg(self.pid, number)
        except OSError as error:
            return error.errno != errno.ESRCH
        return True

    def settle(self, now: float) -> None:
        """From here on it is waited for until it is quiet for a tick."""
        self.state = SETTLING
        self.last = now + SETTLE_S
        self.due = self.last if self.code is None else now + TICK_S

    def exited(self, status: int) -> None:
        """Its first process has ended."""
        self.code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        if self.state != STOPPING:
            self.settle(time.monotonic())

    def wrote(self) -> None:
        """Something came: after the exit, that begins a new wait."""
        if self.state == SETTLING:
            self.due = min(time.monotonic() + TICK_S, self.last)

    def is_over(self, now: float) -> bool:
        """Whether it can be answered. At its deadline: TERM, then KILL for what is left."""
        if self.state == RUNNING and now >= self.due:
            self.state = STOPPING
            self.late = True
            self.last = now + GRACE_S
            self.kill(signal.SIGTERM)
        if self.state == STOPPING:
            alive = self.kill(0)
            self.due = now + TICK_S / 4
            if not alive or now >= self.last:
                self.kill(signal.SIGKILL)
                self.settle(now)
        if self.state != SETTLING:
            return False
        return now >= self.last or (self.code is not None and (not self.open or now >= self.due))


def said(code: int, out: bytes = b"", err: bytes = b"") -> Answer:
    """An answer that no process gave."""
    streams = []
    for data in (out, err):
        streams.append(Capture(-1, "", len(data)))
        streams[-1].take(data)
    return Answer(code, False, *streams)


def failed(error: OSError) -> Answer:
    """An answer for what the system refuses: its error number and words."""
    return said(error.errno or errno.EIO, err=os.fsencode(os.strerror(error.errno or errno.EIO)))


def stat_file(path: str) -> Answer:
    """Type, permissions and size, as `ls` shows them."""
    found = os.stat(path)
    return said(0, os.fsencode(f"{stat.filemode(found.st_mode)} {found.st_size}"))


def read_file(path: str, most: int, folder: str) -> Answer:
    """The first `most` bytes; OSError when it is not a file that can be read."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        found = os.fstat(file)
        if stat.S_ISDIR(found.st_mode):
            raise OSError(errno.EISDIR, path)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, path)
        content = Capture(file, folder, most)
        while content.total < most and content.read():
            pass
    finally:
        os.close(file)
    if content.body.size < min(content.total, most):
        raise OSError(errno.ENOSPC, path)
    content.total = content.body.size
    return Answer(0, False, content, Capture(-1, folder, 0))


def write_file(path: str, mode: int, content: Body) -> Answer:
    """Make the file under another name, then give it its own; links are written through."""
    path = os.path.realpath(path)
    if os.path.isdir(path):
        raise OSError(errno.EISDIR, path)
    folder = os.path.dirname(path)
    try:
        os.makedirs(folder, exist_ok=True)
    except FileExistsError as error:
        raise OSError(errno.ENOTDIR, folder) from error
    aside = os.path.join(folder, f".swe-rollout.{os.getpid()}")
    file = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        for piece in content.chunks():
            write_all(file, piece)
        os.fchmod(file, mode)
        os.rename(aside, path)
    except OSError:
        os.unlink(aside)
        raise
    finally:
        os.close(file)
    return said(0)
