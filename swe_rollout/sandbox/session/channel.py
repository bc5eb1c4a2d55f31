"""The byte stream between a session and the supervisor in a sandbox, and how to open one."""

from __future__ import annotations

from typing import Protocol

from swe_rollout.errors import SandboxDestroyedError, SandboxError


class StreamLostError(SandboxError):
    """The stream broke. Processes in the sandbox may go on, and a new stream may reach them."""


class RelayEndedError(StreamLostError):
    """The sandbox's end of the stream ended by itself, while the sandbox goes on.

    Commands can cause this. The platform can cause it once, but not every time.
    """


class SupervisorGoneError(SandboxDestroyedError):
    """The sandbox is healthy but has no supervisor any more: something inside has ended it."""


class Channel(Protocol):
    """A duplex byte stream. One reader and one writer at a time."""

    async def send(self, data: bytes) -> None:
        """Write all of `data`, waiting while the other side does not read (backpressure).

        Raises the errors of `receive`.
        """
        ...

    async def receive(self) -> bytes:
        """Return some bytes of the program's stdout; b"" once it has ended in an orderly way.

        Raises StreamLostError if only the stream is lost, SandboxError if the sandbox is lost.
        """
        ...

    async def close(self) -> None:
        """End the stream, and the program where that is possible. Idempotent."""
        ...


class StreamOpener(Protocol):
    """Opens channels to one sandbox for as long as it lives."""

    async def open(self) -> Channel:
        """Open a channel to a new process that connects it to the supervisor.

        Raises StreamLostError if another attempt may succeed, SandboxError if none can.
        """
        ...

    async def close(self) -> None:
        """Release everything; no more channels can be opened. Idempotent."""
        ...
