"""The byte stream between a session and the supervisor in a sandbox, and how streams are opened."""

from __future__ import annotations

from typing import Protocol

from swe_rollout.errors import SandboxDestroyedError, SandboxError


class StreamLostError(SandboxError):
    """The stream broke. What runs in the sandbox may go on, and a new stream may reach it."""


class RelayEndedError(StreamLostError):
    """The sandbox's end of the stream ended by itself, while the sandbox goes on.

    Commands can bring that about, and once the platform can; each time it can't.
    """


class SupervisorGoneError(SandboxDestroyedError):
    """The sandbox is healthy but has no supervisor any more: something in it has ended that."""


class Channel(Protocol):
    """A duplex byte stream. One reader, one writer at a time."""

    async def send(self, data: bytes) -> None:
        """Write all of `data`, waiting while the other side does not read (backpressure).

        Raises the errors of `receive`.
        """
        ...

    async def receive(self) -> bytes:
        """Return some bytes of the program's stdout; b"" once it has ended in an orderly way.

        Raises StreamLostError when only the stream is lost, SandboxError when the sandbox is.
        """
        ...

    async def close(self) -> None:
        """End the stream, and the program where that is possible. Idempotent."""
        ...


class StreamOpener(Protocol):
    """Open channels to one sandbox, for as long as it lives."""

    async def open(self) -> Channel:
        """Open a channel to a new process that connects it to the supervisor.

        Raises StreamLostError when another try may succeed, SandboxError when none can.
        """
        ...

    async def close(self) -> None:
        """Release everything; no more channels are opened. Idempotent."""
        ...
