"""ExecStream: the standard streams of a program in a pod, over one WebSocket.

Supports `v5.channel.k8s.io` (with half-close) and `v4`. The only proof of an orderly end is the
Status on channel 3: a socket that closes without one is a lost stream, never a result.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum

import aiohttp
import msgspec

from swe_rollout.cluster.api_error import UNDECODABLE, ApiError
from swe_rollout.cluster.client import ClusterClient
from swe_rollout.cluster.objects import PODS, Status
from swe_rollout.errors import ClusterError, SandboxError, UnreachableError

V5 = "v5.channel.k8s.io"
V4 = "v4.channel.k8s.io"
_VERBS = ("get", "create")
"""The verbs that exec needs: a WebSocket is a GET, and Kubernetes 1.35 asks for create too."""


class _Channel(IntEnum):
    """The stream that a frame belongs to: its first byte."""

    STDIN = 0
    STDOUT = 1
    STDERR = 2
    STATUS = 3
    CLOSE = 255


_STDIN_PREFIX = bytes([_Channel.STDIN])
_CLOSE_STDIN = bytes([_Channel.CLOSE, _Channel.STDIN])
CHUNK_BYTES = 1 << 20
"""The largest frame to send: single frames of tens of MiB reset the connection."""
STDERR_BYTES = 4096
"""How much of the end of the program's stderr is kept for diagnosis."""
_CLOSE_S = 2.0
_EXIT_CODE = re.compile(r"[0-9]{1,3}")
_DATA_TYPES = (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT)


@dataclass(frozen=True, slots=True)
class ExecTarget:
    """The container in which a program runs."""

    namespace: str
    pod: str
    container: str


async def open_exec(
    client: ClusterClient, target: ExecTarget, command: Sequence[str]
) -> ExecStream:
    """Start `command` in the container and connect its streams.

    Raises ApiError if the server refuses, ClusterError if it does not respond.
    """
    query = [("command", argument) for argument in command]
    # stdin is always open: some runtimes end the stream after the first output without it.
    query += [("container", target.container), ("stdin", "true"), ("stdout", "true")]
    query += [("stderr", "true"), ("tty", "false")]
    path = PODS.path(target.namespace, f"{target.pod}/exec", query)
    doing = f"exec in pod {target.pod}"
    try:
        opened = await client.transport.websocket(path, doing=doing, protocols=(V5, V4))
    except ApiError as error:
        raise await _explained(error, client, target, doing) from error
    if opened.protocol not in (V5, V4):
        await opened.close()
        raise SandboxError(
            f"exec in pod {target.pod} uses an unknown protocol",
            why=f"the server selected {opened.protocol!r}, offered were {V5} and {V4}",
            fix="use Kubernetes 1.30 or newer, without a proxy that drops the protocol header",
            retryable=False,
        )
    return ExecStream(opened, pod=target.pod)


async def _explained(
    error: ApiError, client: ClusterClient, target: ExecTarget, doing: str
) -> ApiError:
    """Name the missing right if the server does not.

    The server gives no reason when it refuses the second verb.
    """
    if not error.forbidden or error.lacks_right:
        return error
    with suppress(ClusterError, UnreachableError):
        for verb in _VERBS:
            if not await client.is_allowed(verb, "pods", target.namespace, subresource="exec"):
                message = (
                    f'User "{await client.user()}" cannot {verb} resource "pods/exec" in API group '
                    f'"" in the namespace "{target.namespace}"'
                )
                return ApiError(doing, Status(reason=error.reason, message=message, code=403))
    return error


class ExecEndedError(SandboxError):
    """The program in the pod ended by itself, with an exit code."""

    def __init__(self, pod: str, exit_code: int, stderr: bytes) -> None:
        text = stderr.decode(errors="replace").strip()
        super().__init__(
            f"the supervisor in pod {pod} ended",
            why=f"exit code {exit_code}" + (f"; stderr: {text}" if text else ""),
            fix="check that the image has /bin/sh; 137 means that something killed it, often for "
            "memory",
        )
        self.program_exit_code = exit_code


class ExecLostError(SandboxError):
    """The stream ended without the program's exit status."""


class ExecStream:
    """A `Channel` over an exec WebSocket. One reader and one writer at a time."""

    def __init__(self, opened: aiohttp.ClientWebSocketResponse, *, pod: str) -> None:
        self._socket = opened
        self._pod = pod
        self._stderr = b""
        self._error: SandboxError | None = None
        self._ended = False

    async def send(self, data: bytes) -> None:
        view = memoryview(data)
        for start in range(0, len(view), CHUNK_BYTES):
            await self._send(b"".join((_STDIN_PREFIX, view[start : start + CHUNK_BYTES])))

    async def receive(self) -> bytes:
        """Receive some of the program's stdout; b"" after exit code 0 or our own `close`."""
        while not self._ended:
            message = await self._socket.receive()
            if message.type not in _DATA_TYPES:
                self._finish(self._lost(_close_reason(message, self._socket.close_code)))
                break
            frame = message.data if isinstance(message.data, bytes) else message.data.encode()
            data = self._process(frame)
            if data:
                return data
        await self._close_socket()
        if self._error is not None:
            raise self._error
        return b""

    async def abort(self, error: SandboxError) -> None:
        """End the stream at once; current and later reads and writes raise `error`."""
        self._finish(error)
        self._shut_down()
        await self._close_socket()

    async def close(self) -> None:
        """Close stdin, if the protocol allows, so that the program ends; then close the stream."""
        close_stdin = not self._ended and self._socket.protocol == V5
        self._finish(None)
        await self._close_socket(close_stdin=close_stdin)

    async def _close_socket(self, *, close_stdin: bool = False) -> None:
        """Close the socket, by force if the server no longer reads."""
        try:
            async with asyncio.timeout(_CLOSE_S):
                if close_stdin and not self._socket.closed:
                    # Our side must be closed even if the server has just closed its own.
                    with suppress(aiohttp.ClientError, ConnectionError):
                        await self._socket.send_bytes(_CLOSE_STDIN)
                await self._socket.close()
        except (TimeoutError, asyncio.CancelledError) as error:
            self._shut_down()
            if isinstance(error, asyncio.CancelledError):
                raise
        except (aiohttp.ClientError, ConnectionError):
            return  # The server has already closed it.

    def _shut_down(self) -> None:
        """Shut down the connection beneath WebSocket, TLS and all buffers, which would wait."""
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
            raise self._error or ExecLostError(f"the stream to pod {self._pod} is closed")

    def _finish(self, error: SandboxError | None) -> None:
        """Mark the stream as ended; only the first error is kept."""
        if not self._ended:
            self._ended = True
            self._error = error

    def _process(self, frame: bytes) -> bytes:
        """Return a frame's stdout, if any; keep its stderr; end the stream on its Status."""
        if not frame:
            return b""
        match frame[0]:
            case _Channel.STDOUT:
                return frame[1:]
            case _Channel.STDERR:
                self._stderr = (self._stderr + frame[1:])[-STDERR_BYTES:]
            case _Channel.STATUS:
                self._finish(self._exit_error(frame[1:]))
            case _:
                pass
        return b""

    def _exit_error(self, data: bytes) -> SandboxError | None:
        """Convert the Status on channel 3 to an error; None for success."""
        try:
            status = msgspec.json.decode(data, type=Status)
        except UNDECODABLE:
            return self._lost(data[:500].decode(errors="replace"))
        if status.status == "Success":
            return None
        causes = (status.details.causes if status.details else None) or []
        code = next((cause.message for cause in causes if cause.reason == "ExitCode"), "")
        if status.reason == "NonZeroExitCode" and _EXIT_CODE.fullmatch(code):
            return ExecEndedError(self._pod, int(code), self._stderr)
        return self._lost(f"{status.reason}: {status.message}")

    def _lost(self, why: str) -> ExecLostError:
        text = self._stderr.decode(errors="replace").strip()
        return ExecLostError(
            f"the exec stream to pod {self._pod} was lost",
            why=why + (f"; stderr: {text}" if text else ""),
            fix="check the pod and its node; the attempt is repeated",
        )


def _close_reason(message: aiohttp.WSMessage, code: int | None) -> str:
    """Describe why the socket closed without our asking."""
    match message.type:
        case aiohttp.WSMsgType.ERROR:
            return f"{type(message.data).__name__}: {message.data}"
        case aiohttp.WSMsgType.CLOSE:
            return f"the server closed it with code {message.data} and no exit status"
        case _:
            return f"the connection ended without an exit status (code {code})"
