"""FaultProxy: a TCP proxy on loopback that injects network faults into connections.

Bytes pass through untouched, TLS included, until a fault is set: `rules` apply to every connection,
`ProxiedConnection.cut` and `.silence` to one open connection. With `TlsEnds`, the proxy ends TLS on
both sides and sees what it carries. `exec_proxy` adds faults inside exec streams. Used by cluster
tests, `scripts/conformance exec` and `scripts/conformance chaos`.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from types import TracebackType
from typing import Protocol, Self

_READ_BYTES = 1 << 16
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class CutMode(Enum):
    """How a connection is cut."""

    RESET = auto()
    """RST: both sides get an error."""
    FIN = auto()
    """Both sides see an orderly end of the stream."""


class AcceptMode(Enum):
    """How new connections are accepted."""

    OPEN = auto()
    REFUSED = auto()
    """Reset immediately."""
    SLOW = auto()
    """Nothing passes for `FaultRules.slow_s`, like a slow handshake."""


@dataclass(frozen=True, slots=True)
class FaultRules:
    """Faults for all connections, old and new. By default there are none."""

    accept: AcceptMode = AcceptMode.OPEN
    slow_s: float = 2.0
    delay_s: float = 0.0
    """The delay of each piece of data, in either direction."""
    cut_after: int | None = None
    """Reset a connection after this many bytes to the client."""
    corrupt_after: int | None = None
    """Flip one bit after this many bytes to the client, once per connection."""
    stalled: bool = False
    """Whether to read nothing from either side: buffers fill up, nothing is lost."""


@dataclass(frozen=True, slots=True)
class TlsEnds:
    """The TLS contexts of a proxy that terminates TLS: towards its clients and its server."""

    server: ssl.SSLContext
    client: ssl.SSLContext


class StreamFilter(Protocol):
    """Changes the bytes a proxy sends to a client."""

    def filter(self, data: bytes) -> bytes:
        """Return the bytes to send instead of `data`; some may follow with the next piece."""
        ...


class CutError(Exception):
    """Raised by a filter to reset the connection."""


class ProxiedConnection:
    """One connection through a proxy."""

    def __init__(
        self,
        client: asyncio.StreamWriter,
        server: asyncio.StreamWriter,
        to_client: StreamFilter,
        *,
        label: str = "",
    ) -> None:
        """`label` says what the connection carries, if the proxy knows."""
        self.label = label
        self.is_silent = False
        self.client = client
        self.server = server
        self.to_client = to_client

    def cut(self, how: CutMode = CutMode.RESET) -> None:
        """End the connection on both sides immediately."""
        for side in (self.client, self.server):
            if side.is_closing():
                continue
            if how is CutMode.RESET:
                _reset(side)
            else:
                side.close()

    def silence(self) -> None:
        """Discard everything that either side sends from now on: half-open for both."""
        self.is_silent = True

    def inject(self, data: bytes) -> None:
        """Send `data` to the client as if it came from the server."""
        self.client.write(data)


class FaultProxy:
    """A proxy in front of one address, open as long as its context."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        listen: tuple[str, int] = ("127.0.0.1", 0),
        tls: TlsEnds | None = None,
    ) -> None:
        """Listen on an address and port, 0 for a free one. Without `tls`, TLS passes through."""
        self._listen = listen
        self._tls = tls
        self._rules = FaultRules()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._host = host
        self._port = port
        self._connections: set[ProxiedConnection] = set()
        self._accepted = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """The port on which the proxy listens."""
        if self._server is None:
            raise RuntimeError("the proxy is not open: use `async with`")
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def rules(self) -> FaultRules:
        """The faults of all connections; assign to change them."""
        return self._rules

    @rules.setter
    def rules(self, rules: FaultRules) -> None:
        self._rules = rules
        if rules.stalled:
            self._flowing.clear()
        else:
            self._flowing.set()

    @property
    def connections(self) -> tuple[ProxiedConnection, ...]:
        """The open connections."""
        return tuple(self._connections)

    @property
    def accepted(self) -> int:
        """The number of connections accepted so far."""
        return self._accepted

    def cut(self, how: CutMode = CutMode.RESET) -> None:
        """Cut every open connection."""
        for connection in self.connections:
            connection.cut(how)

    def silence(self) -> None:
        """Silence every open connection; new ones are not affected."""
        for connection in self.connections:
            connection.silence()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._accept, *self._listen, ssl=self._tls.server if self._tls else None
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def connect(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[ProxiedConnection, asyncio.StreamReader]:
        """Connect a new client to the server; return the connection and the server's bytes."""
        del reader
        from_server, server = await asyncio.open_connection(
            self._host, self._port, ssl=self._tls.client if self._tls else None
        )
        return ProxiedConnection(writer, server, _ByteFaults(self)), from_server

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # In our own task: the one asyncio's server creates logs an error when cancelled.
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._accepted += 1
        if self.rules.accept is AcceptMode.REFUSED:
            _reset(writer)
            return
        if self.rules.accept is AcceptMode.SLOW:
            await asyncio.sleep(self.rules.slow_s)
        try:
            connection, from_server = await self.connect(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            _reset(writer)
            return
        self._connections.add(connection)
        try:
            await asyncio.gather(
                self._upward(reader, connection), self._downward(from_server, connection)
            )
        except (OSError, CutError):  # TLS errors are OSErrors
            connection.cut()
        finally:
            self._connections.discard(connection)
            connection.client.close()
            connection.server.close()

    async def _upward(self, source: asyncio.StreamReader, connection: ProxiedConnection) -> None:
        while data := await source.read(_READ_BYTES):
            await self._hold()
            if not connection.is_silent:
                connection.server.write(data)
                await connection.server.drain()
        await _end_writing(connection, connection.server)

    async def _downward(self, source: asyncio.StreamReader, connection: ProxiedConnection) -> None:
        while data := await source.read(_READ_BYTES):
            await self._hold()
            if not connection.is_silent:
                connection.client.write(connection.to_client.filter(data))
                await connection.client.drain()
        await _end_writing(connection, connection.client)

    async def _hold(self) -> None:
        if self.rules.delay_s:
            await asyncio.sleep(self.rules.delay_s)
        await self._flowing.wait()


class _ByteFaults:
    """Byte faults, for proxies that do not know what they carry."""

    def __init__(self, proxy: FaultProxy) -> None:
        self._proxy = proxy
        self._count = 0
        self._corrupted = False

    def filter(self, data: bytes) -> bytes:
        rules, before = self._proxy.rules, self._count
        self._count += len(data)
        if rules.cut_after is not None and self._count >= rules.cut_after:
            raise CutError
        at = rules.corrupt_after
        if at is not None and not self._corrupted and self._count > at:
            self._corrupted = True
            index = max(0, at - before)
            data = data[:index] + bytes([data[index] ^ 1]) + data[index + 1 :]
        return data


def _reset(side: asyncio.StreamWriter) -> None:
    """Close one side's connection with RST, dropping its buffered data."""
    raw: socket.socket | None = side.get_extra_info("socket")
    if raw is not None:
        with suppress(OSError):  # The connection is already closed.
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    side.transport.abort()


async def _end_writing(connection: ProxiedConnection, side: asyncio.StreamWriter) -> None:
    """Pass on the end of a stream, unless the connection is silent."""
    if connection.is_silent:
        await asyncio.Event().wait()
    with suppress(OSError):
        if side.can_write_eof():
            side.write_eof()
        else:
            side.close()
