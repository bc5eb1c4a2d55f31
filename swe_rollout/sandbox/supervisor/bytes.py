"""What passes through the Python supervisor: its stream, what commands write, kept answers.

The rules it is written under are told in `main`.
"""

from __future__ import annotations

import os
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MEMORY = 1 << 20
"""Bytes of one output kept in memory; more go to a file."""
PIPE = 1 << 16
"""What a pipe takes before it blocks; also the size of one read from a command."""
FIELDS = 3
"""Of every frame: its number, what it is, its length."""
LINE = 1 << 20
"""The longest line of a frame."""

INPUTS = (b"in", b"script", b"job")
"""What a request may bring before it is made."""


class BrokenProtocolError(Exception):
    """What came in is no frame."""


def write_all(file: int, data: bytes) -> None:
    """Write every byte of it."""
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


class Body:
    """Bytes to keep: in memory while they are few, then in a file that has no name."""

    def __init__(self, folder: str, limit: int = MEMORY) -> None:
        self.folder = folder
        self.limit = limit
        self.size = 0
        self.pieces: list[bytes] = []
        self.file = -1

    def __del__(self) -> None:
        if self.file >= 0:
            os.close(self.file)

    def add(self, data: bytes) -> None:
        """Append; OSError where the disk is full."""
        if self.file < 0 and self.size + len(data) > self.limit:
            self.spill()
        if self.file < 0:
            self.pieces.append(data)
        else:
            write_all(self.file, data)
        self.size += len(data)

    def spill(self) -> int:
        """The file, made where there was none."""
        if self.file < 0:
            os.makedirs(self.folder, 0o700, exist_ok=True)
            name = os.path.join(self.folder, f"body.{id(self)}")
            self.file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            os.unlink(name)
            write_all(self.file, b"".join(self.pieces))
            self.pieces = []
        return self.file

    def chunks(self) -> Iterator[bytes]:
        """All of it, a piece at a time."""
        yield from self.pieces
        done = 0
        while self.file >= 0 and done < self.size:
            piece = os.pread(self.file, min(MEMORY, self.size - done), done)
            yield piece or bytes(self.size - done)
            done += len(piece) or self.size


class Capture:
    """What a command writes to one of its streams: the first `cap` bytes are kept, all counted."""

    def __init__(self, source: int, folder: str, cap: int) -> None:
        self.source = source
        self.body = Body(folder)
        self.cap = cap
        self.total = 0

    def read(self) -> bool:
        """Take what is there; False at the end of the stream."""
        data = os.read(self.source, PIPE)
        self.take(data)
        return bool(data)

    def take(self, data: bytes) -> None:
        """Count it, and keep what there is room for."""
        self.total += len(data)
        keep = data[: max(0, self.cap - self.body.size)]
        if keep:
            try:
                self.body.add(keep)
            except OSError:
                self.cap = self.body.size

    def finish(self) -> None:
        """Nothing that comes later is kept."""
        self.cap = 0


class Stream:
    """The two ends of the session's byte stream, as it comes and goes."""

    def __init__(self, requests: int, answers: int) -> None:
        self.requests = requests
        self.answers = answers
        self.buffer = bytearray()
        self.queue: deque[Iterator[bytes]] = deque()
        self.piece = memoryview(b"")
        os.set_blocking(answers, False)

    def take(self) -> tuple[bytes, bytes] | None:
        """The next whole frame, if it has arrived."""
        end = self.buffer.find(b"\n")
        if end < 0:
            if len(self.buffer) > LINE:
                raise BrokenProtocolError
            return None
        line = bytes(self.buffer[:end])
        fields = line.split(b" ", 3)
        if len(fields) < FIELDS or not (fields[0].isdigit() and fields[2].isdigit()):
            raise BrokenProtocolError
        length = int(fields[2])
        if length > 2 * MEMORY or (length and fields[1] != b"put"):
            raise BrokenProtocolError
        if len(self.buffer) < end + 1 + length:
            return None
        body = bytes(self.buffer[end + 1 : end + 1 + length])
        del self.buffer[: end + 1 + length]
        return line, body

    def pump(self) -> None:
        """Write until all is written or the other side does not read."""
        while len(self.piece) or self.queue:
            if not len(self.piece):
                self.piece = memoryview(next(self.queue[0], b""))
                if not len(self.piece):
                    self.queue.popleft()
                continue
            try:
                self.piece = self.piece[os.write(self.answers, self.piece) :]
            except BlockingIOError:
                return

    def close(self) -> None:
        for end in {self.requests, self.answers} - {0, 1}:
            os.close(end)


class Answer:
    """The result of a request, kept until it is acknowledged."""

    def __init__(self, code: int, late: bool, out: Capture, err: Capture) -> None:
        self.bodies = (out.body, err.body)
        self.size = out.body.size + err.body.size
        self.values = b"%d %d %d %d %d" % (code, late, out.body.size, out.total, err.total)

    def chunks(self, number: bytes) -> Iterator[bytes]:
        """The frame, a piece at a time."""
        head = b"%b result %d %b\n" % (number, self.size, self.values)
        bodies = (piece for body in self.bodies for piece in body.chunks())
        if self.size > PIPE:
            yield head
            yield from bodies
        else:
            yield b"".join([head, *bodies])
