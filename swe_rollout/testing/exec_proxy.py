"""ExecProxy: a fault proxy that reads along, so that faults can be put inside exec streams.

It ends TLS itself: clients speak plain HTTP to a secret path on loopback, the proxy speaks to the
API server with the kubeconfig's credentials. Every client understands that, and needs none of its
own. Frames to the client are taken apart; those to the server pass as they are.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from swe_rollout.testing.fault_proxy import Connection, FaultProxy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from swe_rollout.cluster.config import Access

EXEC: Final = "exec"
"""The label of connections that carry an exec stream."""
_HEAD_BYTES = 1 << 18
_STATUS_CHANNEL = 3
_STRANGE_CHANNELS = (4, 7, 200)
_FIN = 0x80
_RESERVED = 0x70
_CONTINUE, _TEXT, _BINARY, _CLOSE = 0, 1, 2, 8
_SHORT, _MEDIUM, _LONG = 125, 126, 127
_PIECE = 3
"""Bytes of payload that a message is split into."""


class Twist(Enum):
    """What happens to the frames of exec streams on their way to the client."""

    NONE = auto()
    SPLIT = auto()
    """Each message becomes many, of a few bytes each, on the same channel."""
    FRAGMENTED = auto()
    """Each message becomes one of many WebSocket fragments."""
    STRANGE = auto()
    """Messages on channels that nobody knows, and some without data, come in between."""
    NO_STATUS = auto()
    """The status on channel 3 never comes; the socket closes as usual."""
    NO_END = auto()
    """Neither the status nor the end of the socket ever comes."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One WebSocket frame from the server, which does not mask."""

    first: int
    """FIN, reserved bits and the opcode."""
    payload: bytes

    @property
    def opcode(self) -> int:
        """What kind of frame it is."""
        return self.first & 0x0F

    def encoded(self) -> bytes:
        """Its bytes on the wire."""
        size = len(self.payload)
        if size <= _SHORT:
            head = bytes([self.first, size])
        elif size < 1 << 16:
            head = bytes([self.first, _MEDIUM]) + size.to_bytes(2, "big")
        else:
            head = bytes([self.first, _LONG]) + size.to_bytes(8, "big")
        return head + self.payload


GARBAGE: Final = Frame(_FIN | _RESERVED | _BINARY, b"\x01garbage").encoded()
"""A frame that no WebSocket may carry. For `Connection.inject`."""


def status_error(message: str) -> bytes:
    """A status on channel 3 as the runtime sends it when it fails itself, not the command."""
    status = {
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": "InternalError",
        "details": {"causes": [{"message": message}]},
        "code": 500,
    }
    payload = bytes([_STATUS_CHANNEL]) + json.dumps(status).encode()
    return Frame(_FIN | _BINARY, payload).encoded() + Frame(_FIN | _CLOSE, b"\x03\xe8").encoded()


class ExecProxy(FaultProxy):
    """A fault proxy in front of one API server."""

    def __init__(self, access: Access) -> None:
        """Speaks to the server with the credentials of `access`."""
        address = urlsplit(access.server)
        host = address.hostname or "localhost"
        default = 443 if address.scheme == "https" else 80
        super().__init__(host, address.port or default)
        self.twist = Twist.NONE
        """Assign to change what happens to exec streams."""
        self._access = access
        self._address = address
        self._secret = f"/{secrets.token_urlsafe(24)}"

    @property
    def execs(self) -> tuple[Connection, ...]:
        """The exec streams that are open."""
        return tuple(connection for connection in self.connections if connection.label == EXEC)

    def write_kubeconfig(self, path: Path, *, namespace: str) -> str:
        """The context, the only one of this new kubeconfig, that leads through this proxy."""
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
    ) -> tuple[Connection, asyncio.StreamReader]:
        """As the base does, with the request's head already sent on."""
        head = _Head.of(await reader.readuntil(b"\r\n\r\n"), self._secret)
        if head is None:
            writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            raise ConnectionRefusedError("the path of a request is not ours")
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
            return Connection(writer, server, _Untouched()), from_server
        answer = await from_server.readuntil(b"\r\n\r\n")
        writer.write(answer)
        if answer.split(None, 2)[1] != b"101":
            return Connection(writer, server, _Untouched()), from_server
        connection = Connection(writer, server, _Untouched(), label=EXEC)
        connection.to_client = _Frames(self, connection)
        return connection, from_server


@dataclass(frozen=True, slots=True)
class _Head:
    """The head of a client's request, without what concerns only the hop to here."""

    method: str
    path: str
    lines: tuple[str, ...]
    upgrades: bool

    @classmethod
    def of(cls, data: bytes, secret: str) -> _Head | None:
        """None where the path does not begin with the secret."""
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


class _Untouched:
    def passed(self, data: bytes) -> bytes:
        return data


class _Frames:
    """Takes frames apart and puts others in their place."""

    def __init__(self, proxy: ExecProxy, connection: Connection) -> None:
        self._proxy = proxy
        self._connection = connection
        self._buffer = bytearray()

    def passed(self, data: bytes) -> bytes:
        self._buffer += data
        return b"".join(
            twisted.encoded() for frame in self._whole_frames() for twisted in self._twisted(frame)
        )

    def _whole_frames(self) -> Iterator[Frame]:
        while (size := _frame_size(self._buffer)) is not None:
            head, end = size
            yield Frame(self._buffer[0], bytes(self._buffer[head:end]))
            del self._buffer[:end]

    def _twisted(self, frame: Frame) -> Iterator[Frame]:
        if self._connection.is_silent:
            return
        is_data = frame.opcode in (_TEXT, _BINARY) and frame.payload != b""
        is_status = is_data and frame.payload[0] == _STATUS_CHANNEL
        match self._proxy.twist:
            case Twist.SPLIT if is_data and not is_status:
                channel = frame.payload[:1]
                for start in range(1, len(frame.payload), _PIECE):
                    yield Frame(frame.first, channel + frame.payload[start : start + _PIECE])
            case Twist.FRAGMENTED if is_data:
                yield from _fragments(frame)
            case Twist.STRANGE if is_data:
                yield Frame(_FIN | _BINARY, b"\x01")
                for channel_number in _STRANGE_CHANNELS:
                    yield Frame(_FIN | _BINARY, bytes([channel_number]) + b"strange")
                yield frame
            case Twist.NO_STATUS if is_status:
                pass
            case Twist.NO_END if is_status:
                self._connection.silence()
            case _:
                yield frame


def _fragments(frame: Frame) -> Iterator[Frame]:
    pieces = [frame.payload[i : i + _PIECE] for i in range(0, len(frame.payload), _PIECE)]
    for index, piece in enumerate(pieces):
        fin = _FIN if index == len(pieces) - 1 else 0
        yield Frame(fin | (_CONTINUE if index else frame.opcode), piece)


def _frame_size(buffer: bytearray) -> tuple[int, int] | None:
    """Where the payload of the first frame begins and ends; none while it is not whole."""
    if len(buffer) < 2:  # noqa: PLR2004 - the shortest head
        return None
    head, size = 2, buffer[1] & 0x7F
    if size in (_MEDIUM, _LONG):
        head = 4 if size == _MEDIUM else 10
        if len(buffer) < head:
            return None
        size = int.from_bytes(buffer[2:head], "big")
    return (head, head + size) if len(buffer) >= head + size else None
