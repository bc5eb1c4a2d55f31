"""ExecProxy: a fault proxy that parses exec streams to inject faults into them.

It terminates TLS itself: clients speak plain HTTP to a secret path on loopback, and the proxy
speaks to the API server with the kubeconfig's credentials. Every client supports that, and none
needs its own credentials. Frames to the client are parsed; those to the server pass unchanged.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from rollout_dev.faults.fault_proxy import FaultProxy, ProxiedConnection
from swe_rollout.cluster.config import Access

EXEC: Final = "exec"
"""The label of connections with an exec stream."""
_HEAD_BYTES = 1 << 18
_STATUS_CHANNEL = 3
_STRANGE_CHANNELS = (4, 7, 200)
_FIN = 0x80
_RESERVED = 0x70
_CONTINUE, _TEXT, _BINARY, _CLOSE = 0, 1, 2, 8
_SHORT, _MEDIUM, _LONG = 125, 126, 127
_PIECE = 3
"""Payload bytes per piece of a split message."""


class StreamFault(Enum):
    """A fault in the frames of exec streams to the client."""

    NONE = auto()
    SPLIT = auto()
    """Each message becomes many of a few bytes each, on the same channel."""
    FRAGMENTED = auto()
    """Each message is sent as many WebSocket fragments."""
    STRANGE = auto()
    """Messages on unknown channels and messages without data are inserted."""
    NO_STATUS = auto()
    """The status on channel 3 is dropped; the socket closes as usual."""
    NO_END = auto()
    """The status is dropped and the socket never closes."""


@dataclass(frozen=True, slots=True)
class WebSocketFrame:
    """An unmasked WebSocket frame, as servers send them."""

    first: int
    """FIN, reserved bits and the opcode."""
    payload: bytes

    @property
    def opcode(self) -> int:
        """The WebSocket opcode."""
        return self.first & 0x0F

    def encoded(self) -> bytes:
        """Encode the frame as bytes."""
        size = len(self.payload)
        if size <= _SHORT:
            head = bytes([self.first, size])
        elif size < 1 << 16:
            head = bytes([self.first, _MEDIUM]) + size.to_bytes(2, "big")
        else:
            head = bytes([self.first, _LONG]) + size.to_bytes(8, "big")
        return head + self.payload


GARBAGE: Final = WebSocketFrame(_FIN | _RESERVED | _BINARY, b"\x01garbage").encoded()
"""An invalid WebSocket frame, for `ProxiedConnection.inject`."""


def status_error(message: str) -> bytes:
    """Encode the status on channel 3 that reports a failure of the runtime, not of the command."""
    status = {
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": "InternalError",
        "details": {"causes": [{"message": message}]},
        "code": 500,
    }
    payload = bytes([_STATUS_CHANNEL]) + json.dumps(status).encode()
    return (
        WebSocketFrame(_FIN | _BINARY, payload).encoded()
        + WebSocketFrame(_FIN | _CLOSE, b"\x03\xe8").encoded()
    )


class ExecProxy(FaultProxy):
    """A fault proxy in front of one API server."""

    def __init__(self, access: Access) -> None:
        address = urlsplit(access.server)
        host = address.hostname or "localhost"
        default = 443 if address.scheme == "https" else 80
        super().__init__(host, address.port or default)
        self.stream_fault = StreamFault.NONE
        """The fault of all exec streams; assign to change it."""
        self._access = access
        self._address = address
        self._secret = f"/{secrets.token_urlsafe(24)}"

    @property
    def execs(self) -> tuple[ProxiedConnection, ...]:
        """The open exec streams."""
        return tuple(connection for connection in self.connections if connection.label == EXEC)

    def write_kubeconfig(self, path: Path, *, namespace: str) -> str:
        """Write a kubeconfig that leads through this proxy; return its only context."""
        name = f"faulty-{self.port}"
        named = {"name": name}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [
                {**named, "cluster": {"server": f"http://127.0.0.1:{self.port}{self._secret}"}}
            ],
            "users": [{**named, "user": {}}],
            "contexts": [
                {
                    **named,
                    "context": {"cluster": name, "user": name, "namespace": namespace},
                }
            ],
        }
        path.touch(mode=0o600)
        path.write_text(json.dumps(content))
        return name

    async def connect(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[ProxiedConnection, asyncio.StreamReader]:
        head = _RequestHead.of(await reader.readuntil(b"\r\n\r\n"), self._secret)
        if head is None:
            writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            raise ConnectionRefusedError("the path of the request lacks the secret")
        from_server, server = await asyncio.open_connection(
            self._host,
            self._port,
            ssl=self._access.tls,
            server_hostname=self._access.tls_server_name if self._access.tls else None,
            limit=_HEAD_BYTES,
        )
        credentials = await self._access.credentials.headers()
        server.write(head.encoded(self._address.netloc, self._address.path, credentials))
        if not head.upgrades:
            return ProxiedConnection(writer, server, _PassThrough()), from_server
        response = await from_server.readuntil(b"\r\n\r\n")
        writer.write(response)
        if response.split(None, 2)[1] != b"101":
            return ProxiedConnection(writer, server, _PassThrough()), from_server
        connection = ProxiedConnection(writer, server, _PassThrough(), label=EXEC)
        connection.to_client = _FrameFaults(self, connection)
        return connection, from_server


@dataclass(frozen=True, slots=True)
class _RequestHead:
    """The head of a client's request, without hop-by-hop headers."""

    method: str
    path: str
    lines: tuple[str, ...]
    upgrades: bool

    @classmethod
    def of(cls, data: bytes, secret: str) -> _RequestHead | None:
        """Parse a request head; None if its path does not start with the secret."""
        first, *lines = data.decode("latin-1").rstrip().split("\r\n")
        method, path, _ = first.split(" ", 2)
        if not path.startswith(f"{secret}/"):
            return None
        upgrades = any(line.lower().startswith("upgrade:") for line in lines)
        hop = ("host:", "authorization:") + (() if upgrades else ("connection:",))
        kept = tuple(line for line in lines if not line.lower().startswith(hop))
        return cls(method, path.removeprefix(secret), kept, upgrades)

    def encoded(self, host: str, prefix: str, credentials: dict[str, str]) -> bytes:
        lines = [
            f"{self.method} {prefix.rstrip('/')}{self.path} HTTP/1.1",
            f"Host: {host}",
            *([] if self.upgrades else ["Connection: close"]),
            *(f"{name}: {value}" for name, value in credentials.items()),
            *self.lines,
        ]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


class _PassThrough:
    def filter(self, data: bytes) -> bytes:
        return data


class _FrameFaults:
    """Parses frames and replaces them according to the proxy's fault."""

    def __init__(self, proxy: ExecProxy, connection: ProxiedConnection) -> None:
        self._proxy = proxy
        self._connection = connection
        self._buffer = bytearray()

    def filter(self, data: bytes) -> bytes:
        self._buffer += data
        return b"".join(
            changed.encoded()
            for frame in self._whole_frames()
            for changed in self._apply_fault(frame)
        )

    def _whole_frames(self) -> Iterator[WebSocketFrame]:
        while (size := _frame_size(self._buffer)) is not None:
            head, end = size
            yield WebSocketFrame(self._buffer[0], bytes(self._buffer[head:end]))
            del self._buffer[:end]

    def _apply_fault(self, frame: WebSocketFrame) -> Iterator[WebSocketFrame]:
        if self._connection.is_silent:
            return
        is_data = frame.opcode in (_TEXT, _BINARY) and frame.payload != b""
        is_status = is_data and frame.payload[0] == _STATUS_CHANNEL
        match self._proxy.stream_fault:
            case StreamFault.SPLIT if is_data and not is_status:
                channel = frame.payload[:1]
                for start in range(1, len(frame.payload), _PIECE):
                    yield WebSocketFrame(
                        frame.first, channel + frame.payload[start : start + _PIECE]
                    )
            case StreamFault.FRAGMENTED if is_data:
                yield from _fragments(frame)
            case StreamFault.STRANGE if is_data:
                yield WebSocketFrame(_FIN | _BINARY, b"\x01")
                for channel_number in _STRANGE_CHANNELS:
                    yield WebSocketFrame(_FIN | _BINARY, bytes([channel_number]) + b"strange")
                yield frame
            case StreamFault.NO_STATUS if is_status:
                pass
            case StreamFault.NO_END if is_status:
                self._connection.silence()
            case _:
                yield frame


def _fragments(frame: WebSocketFrame) -> Iterator[WebSocketFrame]:
    pieces = [frame.payload[i : i + _PIECE] for i in range(0, len(frame.payload), _PIECE)]
    for index, piece in enumerate(pieces):
        fin = _FIN if index == len(pieces) - 1 else 0
        yield WebSocketFrame(fin | (_CONTINUE if index else frame.opcode), piece)


def _frame_size(buffer: bytearray) -> tuple[int, int] | None:
    """Return start and end of the first frame's payload; None while it is incomplete."""
    if len(buffer) < 2:  # noqa: PLR2004 - the shortest frame head
        return None
    head, size = 2, buffer[1] & 0x7F
    if size in (_MEDIUM, _LONG):
        head = 4 if size == _MEDIUM else 10
        if len(buffer) < head:
            return None
        size = int.from_bytes(buffer[2:head], "big")
    return (head, head + size) if len(buffer) >= head + size else None
