"""Channel: the bytes between a session and the supervisor in a sandbox, however they travel."""

from __future__ import annotations

from typing import Protocol


class Channel(Protocol):
    """A duplex byte stream. One reader, one writer at a time."""

    async def send(self, data: bytes) -> None:
        """Write all of `data`; waits while the other side does not read (backpressure)."""
        ...

    async def receive(self) -> bytes:
        """Some bytes of the supervisor's stdout; b"" once it has ended in an orderly way.

        Raises SandboxError that says why when the stream is lost.
        """
        ...

    async def close(self) -> None:
        """End the stream and the supervisor. Idempotent."""
        ...
