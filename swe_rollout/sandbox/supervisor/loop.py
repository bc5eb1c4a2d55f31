"""The Python supervisor's one thread: waits for all pipes at once, and for the session's stream.

The rules it is written under are told in `main`.
"""

from __future__ import annotations

import os
import select
import signal
import time
from functools import partial
from typing import TYPE_CHECKING

from swe_rollout.sandbox.supervisor.bytes import LINE, PIPE, BrokenProtocolError, Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FOREVER = float("inf")


class Loop:
    """A stream of frames that may be lost and come back, and handlers of other pipes."""

    def __init__(self, folder: str, greeting: bytes, orphan_s: float) -> None:
        self.folder = folder
        self.greeting = greeting
        self.orphan_s = orphan_s
        self.handlers: dict[int, Callable[[], None]] = {}
        self.poll = select.poll()
        self.stream: Stream | None = None
        self.over_at = 0.0
        """When nobody is waited for any more, while there is no stream."""
        self.ending = False

    # --- what a supervisor makes of it -----------------------------------------------------------

    def perform(self, line: bytes, body: bytes) -> None:
        """Do what a frame asks for; BrokenProtocolError or ValueError when it is none."""
        raise NotImplementedError

    def reap(self) -> None:
        """A child has ended."""
        raise NotImplementedError

    def act(self, now: float) -> float:
        """Do what is due now; returns when to come back."""
        raise NotImplementedError

    def forget_inputs(self) -> None:
        """What was half said will be said again."""
        raise NotImplementedError

    # --- the loop --------------------------------------------------------------------------------

    def serve(self) -> None:
        """Until the session says goodbye, or nobody has come back for it."""
        wake, wakes = os.pipe()
        os.set_blocking(wakes, False)
        signal.set_wakeup_fd(wakes)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.listen(wake, partial(self.woken, wake))
        call = os.open(os.path.join(self.folder, "call"), os.O_RDWR | os.O_NONBLOCK)
        self.listen(call, partial(self.called, call))
        self.connect(Stream(0, 1))
        due = FOREVER
        while not self.ending:
            pause_s = max(0.0, due - time.monotonic())
            for source, _ in self.poll.poll(None if due == FOREVER else pause_s * 1000 + 1):
                if source in self.handlers:
                    self.handlers[source]()
            due = self.at_once(time.monotonic())

    def at_once(self, now: float) -> float:
        """Everything that is due; returns when to come back."""
        due = self.act(now)
        if self.stream is not None:
            return due
        self.ending = self.ending or now >= self.over_at
        return min(due, self.over_at)

    def woken(self, wake: int) -> None:
        """A signal has come."""
        os.read(wake, PIPE)
        self.reap()

    def listen(self, source: int, handler: Callable[[], None]) -> None:
        self.handlers[source] = handler
        self.poll.register(source, select.POLLIN)

    def ignore(self, source: int) -> None:
        del self.handlers[source]
        self.poll.unregister(source)

    def connect(self, stream: Stream) -> None:
        self.disconnect()
        self.stream = stream
        self.listen(stream.requests, self.receive)
        self.send(self.greeting)

    def disconnect(self) -> None:
        """The stream is lost: what runs goes on, what was half said is forgotten."""
        if self.stream is None:
            return
        self.ignore(self.stream.requests)
        if self.stream.answers in self.handlers:
            self.ignore(self.stream.answers)
        self.stream.close()
        self.stream = None
        self.forget_inputs()
        self.over_at = time.monotonic() + self.orphan_s

    def called(self, call: int) -> None:
        """A relay has opened two pipes, and says by which name; the last one counts."""
        name = (os.read(call, PIPE).split() or [b""])[-1].decode("ascii", "replace")
        paths = [os.path.join(self.folder, end + "." + name) for end in ("requests", "answers")]
        try:
            requests = os.open(paths[0], os.O_RDONLY | os.O_NONBLOCK)
            self.connect(Stream(requests, os.open(paths[1], os.O_RDWR)))
        except (OSError, ValueError):
            return  # it has gone, or was none

    def receive(self) -> None:
        stream = self.stream
        if stream is None:
            return
        try:
            data = os.read(stream.requests, LINE)
        except OSError:
            data = b""
        if not data:
            self.disconnect()
            return
        stream.buffer += data
        try:
            frame = stream.take()
            while frame is not None and self.stream is stream and not self.ending:
                self.perform(*frame)
                frame = stream.take()
        except (BrokenProtocolError, ValueError):
            self.ending = True

    def send(self, data: bytes) -> None:
        self.send_all(iter([data]))

    def send_all(self, data: Iterator[bytes]) -> None:
        if self.stream is not None:
            self.stream.queue.append(data)
            self.pump()

    def pump(self) -> None:
        stream = self.stream
        if stream is None:
            return
        try:
            stream.pump()
        except OSError:
            self.disconnect()
            return
        waiting = bool(stream.queue or len(stream.piece))
        if waiting and stream.answers not in self.handlers:
            self.handlers[stream.answers] = self.pump
            self.poll.register(stream.answers, select.POLLOUT)
        elif not waiting and stream.answers in self.handlers:
            self.ignore(stream.answers)
