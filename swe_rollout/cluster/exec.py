"""ExecStream: the standard streams of a program in a pod, over one WebSocket.

Speaks `v5.channel.k8s.io` (with half-close) and `v4`. The only proof of an orderly end is the
Status on channel 3: a socket that closes without one is a lost stream, never a result.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

import aiohttp
import msgspec

from swe_rollout.cluster.client import pods_path
from swe_rollout.cluster.objects import Status
from swe_rollout.errors import SandboxError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from swe_rollout.cluster.client import ClusterClient

V5 = "v5.channel.k8s.io"
V4 = "v4.channel.k8s.io"


class _Channel(IntEnum):
    """The first byte of a frame."""

    STDIN = 0
    STDOUT = 1
    STDERR = 2
    STATUS = 3
    CLOSE = 255


_STDIN_PREFIX = bytes([_Channel.STDIN])
_CLOSE_STDIN = bytes([_Channel.CLOSE, _Channel.STDIN])
CHUNK_BYTES = 1 << 20
"""Single frames of tens of MiB reset the connection."""
STDERR_BYTES = 4096
"""Kept of the program's own stderr, for diagnosis."""
_GOODBYE_S = 2.0
_DATA = (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT)


@dataclass(frozen=True, slots=True)
class ExecTarget:
    """Where a program runs."""

    namespace: str
    pod: str
    container: str


async def open_exec(
    client: ClusterClient, target: ExecTarget, command: Sequence[str]
) -> ExecStream:
    """Start `command` in the container and hold its streams.

    Raises ApiError when the server refuses, ClusterError when nothing answers.
    """
    query = [("command", argument) for argument in command]
    # stdin is always open: some runtimes end the stream after the first output without it.
    query += [("container", target.container), ("stdin", "true"), ("stdout", "true")]
    query += [("stderr", "true"), ("tty", "false")]
    path = f"{pods_path(target.namespace, target.pod)}/exec?{urlencode(query, quote_via=quote)}"
    opened = await client.transport.websocket(
        path, doing=f"exec in pod {target.pod}", protocols=(V5, V4)
    )
    if opened.protocol not in (V5, V4):
        await opened.close()
        raise SandboxError(
            f"exec in pod {target.pod} speaks an unknown protocol",
            why=f"the server chose {opened.protocol!r}, offered were {V5} and {V4}",
            fix="Kubernetes 1.30 or newer is needed, without a proxy that drops the header",
            retryable=False,
        )
    return ExecStream(opened, place=f"pod {target.pod}")


class ExecEndedError(SandboxError):
    """The program in the pod ended by itself, with an exit code."""

    def __init__(self, place: str, exit_code: int, stderr: bytes) -> None:
        words = stderr.decode(errors="replace").strip()
        super().__init__(
            f"the supervisor in {place} ended",
            why=f"exit code {exit_code}" + (f"; it said: {words}" if words else ""),
            fix="the image needs /bin/sh; 137 means that something killed it, often for memory",
        )
        self.program_exit_code = exit_code


class ExecLostError(SandboxError):
    """The stream ended without the program's exit status."""


class ExecStream:
    """A `Channel` over an exec WebSocket. One reader and one writer at a time."""

    def __init__(self, opened: aiohttp.ClientWebSocketResponse, *, place: str) -> None:
        self._socket = opened
        self._place = place
        self._stderr = b""
        self._end: SandboxError | None = None
        self._ended = False

    @property
    def stderr_tail(self) -> bytes:
        """The last bytes of the program's stderr."""
        return self._stderr

    async def send(self, data: bytes) -> None:
        """Write to the program's stdin; waits while it does not read."""
        view = memoryview(data)
        for start in range(0, len(view), CHUNK_BYTES):
            await self._send(b"".join((_STDIN_PREFIX, view[start : start + CHUNK_BYTES])))

    async def receive(self) -> bytes:
        """Some of the program's stdout; b"" after exit code 0 or our own `close`."""
        while not self._ended:
            message = await self._socket.receive()
            if message.type not in _DATA:
                self._finish(self._lost(_closing_words(message, self._socket.close_code)))
                break
            frame = message.data if isinstance(message.data, bytes) else message.data.encode()
            data = self._take(frame)
            if data:
                return data
        await self._hang_up()
        if self._end is not None:
            raise self._end
        return b""

    async def abort(self, error: SandboxError) -> None:
        """End the stream at once; whoever reads or writes gets `error`."""
        self._finish(error)
        self._cut()
        await self._hang_up()

    async def close(self) -> None:
        """Close stdin where the protocol can, so that the program ends, then the stream."""
        goodbye = not self._ended and self._socket.protocol == V5
        self._finish(None)
        await self._hang_up(goodbye=goodbye)

    async def _hang_up(self, *, goodbye: bool = False) -> None:
        """Close the socket, by force where the other side no longer reads."""
        try:
            async with asyncio.timeout(_GOODBYE_S):
                if goodbye and not self._socket.closed:
                    # Also where the other side has just closed it, ours must be closed.
                    with suppress(aiohttp.ClientError, ConnectionError):
                        await self._socket.send_bytes(_CLOSE_STDIN)
                await self._socket.close()
        except TimeoutError:
            self._cut()
        except (aiohttp.ClientError, ConnectionError):
            return  # it is closed, by the other side

    def _cut(self) -> None:
        """End the connection below WebSocket, TLS and all buffers: closing those would wait."""
        connection = self._socket.get_extra_info("socket")
        if connection is not None:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    async def _send(self, frame: bytes) -> None:
        if not self._ended:
            try:
                await self._socket.send_bytes(frame)
            except (aiohttp.ClientError, ConnectionError) as error:
                self._finish(self._lost(str(error)))
        if self._ended:
            raise self._end or ExecLostError(f"the stream to {self._place} is closed")

    def _finish(self, error: SandboxError | None) -> None:
        """The first reason to end is the one that is told."""
        if not self._ended:
            self._ended = True
            self._end = error

    def _take(self, frame: bytes) -> bytes:
        """Stdout of one frame, if it has any; other channels are kept or end the stream."""
        if not frame:
            return b""
        match frame[0]:
            case _Channel.STDOUT:
                return frame[1:]
            case _Channel.STDERR:
                self._stderr = (self._stderr + frame[1:])[-STDERR_BYTES:]
            case _Channel.STATUS:
                self._finish(self._verdict(frame[1:]))
            case _:
                pass
        return b""

    def _verdict(self, data: bytes) -> SandboxError | None:
        """What the Status on channel 3 says; none for success."""
        try:
            status = msgspec.json.decode(data, type=Status)
        except msgspec.DecodeError:
            return self._lost(data[:500].decode(errors="replace"))
        if status.status == "Success":
            return None
        causes = (status.details.causes if status.details else None) or []
        code = next((cause.message for cause in causes if cause.reason == "ExitCode"), "")
        if status.reason == "NonZeroExitCode" and code.isdigit():
            return ExecEndedError(self._place, int(code), self._stderr)
        return self._lost(f"{status.reason}: {status.message}")

    def _lost(self, why: str) -> ExecLostError:
        words = self._stderr.decode(errors="replace").strip()
        return ExecLostError(
            f"the exec stream to {self._place} was lost",
            why=why + (f"; stderr: {words}" if words else ""),
            fix="look at the pod and its node; the attempt is repeated",
        )


def _closing_words(message: aiohttp.WSMessage, code: int | None) -> str:
    """Why a socket that is not ours to close has closed."""
    match message.type:
        case aiohttp.WSMsgType.ERROR:
            return f"{type(message.data).__name__}: {message.data}"
        case aiohttp.WSMsgType.CLOSE:
            return f"the server closed it with code {message.data} and no exit status"
        case _:
            return f"the connection ended without an exit status (code {code})"
