"""FaultProxy: a TCP proxy on loopback that does to connections what networks do to them.

Bytes pass through untouched, TLS and all, until a fault is scripted: `rules` hold for every
connection, `Connection.cut` and `Connection.silence` are for one that is open. Faults inside an
exec stream are `exec_proxy`'s. Used by cluster tests and by scripts/conformance/exec.py.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from types import TracebackType

_READ_BYTES = 1 << 16
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class End(Enum):
    """How a connection is cut."""

    RESET = auto()
    """RST: both sides get an error."""
    FIN = auto()
    """Both sides see an orderly end of the stream."""


class Door(Enum):
    """What happens to new connections."""

    OPEN = auto()
    REFUSED = auto()
    """Reset as soon as they are made."""
    SLOW = auto()
    """Nothing passes for `Rules.slow_s`: a handshake that takes its time."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What happens to connections, old and new. The default is nothing."""

    door: Door = Door.OPEN
    slow_s: float = 2.0
    delay_s: float = 0.0
    """Before each piece of data, either way."""
    cut_after: int | None = None
    """Reset a connection once it has carried so many bytes to the client."""
    corrupt_after: int | None = None
    """Flip one bit of what comes after so many bytes to the client, once a connection."""
    stalled: bool = False
    """Read nothing from either side: both run into full buffers, nothing is lost."""


class Filter(Protocol):
    """What a proxy makes of the bytes to a client."""

    def passed(self, data: bytes) -> bytes:
        """What to send instead of `data`; the rest may follow with the next piece."""
        ...


class CutError(Exception):
    """A filter's wish: reset the connection."""


class Connection:
    """One connection through a proxy."""

    def __init__(
        self,
        client: asyncio.StreamWriter,
        server: asyncio.StreamWriter,
        to_client: Filter,
        *,
        label: str = "",
    ) -> None:
        """`label` says what it is for, where the proxy can tell."""
        self.label = label
        self.is_silent = False
        self.client = client
        self.server = server
        self.to_client = to_client

    def cut(self, how: End = End.RESET) -> None:
        """End the connection on both sides, now."""
        for side in (self.client, self.server):
            if side.is_closing():
                continue
            if how is End.RESET:
                end_by_reset(side)
            else:
                side.close()

    def silence(self) -> None:
        """From now on, swallow what either side sends, and say nothing: half-open for both."""
        self.is_silent = True

    def inject(self, data: bytes) -> None:
        """Send `data` to the client, as if the server had."""
        self.client.write(data)


class FaultProxy:
    """A proxy in front of one address, for as long as the context is open."""

    def __init__(self, host: str, port: int) -> None:
        self._rules = Rules()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._host = host
        self._port = port
        self._connections: set[Connection] = set()
        self._accepted = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """Where it listens, on 127.0.0.1."""
        if self._server is None:
            raise RuntimeError("the proxy is not open: use `async with`")
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def rules(self) -> Rules:
        """What happens to connections; assign to change it."""
        return self._rules

    @rules.setter
    def rules(self, rules: Rules) -> None:
        self._rules = rules
        if rules.stalled:
            self._flowing.clear()
        else:
            self._flowing.set()

    @property
    def connections(self) -> tuple[Connection, ...]:
        """The connections that are open."""
        return tuple(self._connections)

    @property
    def accepted(self) -> int:
        """Connections made so far."""
        return self._accepted

    def cut(self, how: End = End.RESET) -> None:
        """Cut every connection that is open."""
        for connection in self.connections:
            connection.cut(how)

    def silence(self) -> None:
        """Make every connection that is open a silent one; new ones are well."""
        for connection in self.connections:
            connection.silence()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
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
    ) -> tuple[Connection, asyncio.StreamReader]:
        """A connection to the server for a client that has come, and the server's bytes."""
        del reader
        from_server, server = await asyncio.open_connection(self._host, self._port)
        return Connection(writer, server, _Bytes(self)), from_server

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # In a task of our own: the one of asyncio's server complains when it is cancelled.
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._accepted += 1
        if self.rules.door is Door.REFUSED:
            end_by_reset(writer)
            return
        if self.rules.door is Door.SLOW:
            await asyncio.sleep(self.rules.slow_s)
        try:
            connection, from_server = await self.connect(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            end_by_reset(writer)
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

    async def _upward(self, source: asyncio.StreamReader, connection: Connection) -> None:
        while data := await source.read(_READ_BYTES):
            await self._hold()
            if not connection.is_silent:
                connection.server.write(data)
                await connection.server.drain()
        await _end_writing(connection, connection.server)

    async def _downward(self, source: asyncio.StreamReader, connection: Connection) -> None:
        while data := await source.read(_READ_BYTES):
            await self._hold()
            if not connection.is_silent:
                connection.client.write(connection.to_client.passed(data))
                await connection.client.drain()
        await _end_writing(connection, connection.client)

    async def _hold(self) -> None:
        if self.rules.delay_s:
            await asyncio.sleep(self.rules.delay_s)
        await self._flowing.wait()


class _Bytes:
    """The faults of a proxy that doesn't know what it carries."""

    def __init__(self, proxy: FaultProxy) -> None:
        self._proxy = proxy
        self._count = 0
        self._corrupted = False

    def passed(self, data: bytes) -> bytes:
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


def end_by_reset(side: asyncio.StreamWriter) -> None:
    """Close one side's connection by RST, whatever is still in its buffers."""
    raw: socket.socket | None = side.get_extra_info("socket")
    if raw is not None:
        with suppress(OSError):  # it has ended already
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    side.transport.abort()


async def _end_writing(connection: Connection, side: asyncio.StreamWriter) -> None:
    """Pass on the end of a stream, unless the connection keeps silent about everything."""
    if connection.is_silent:
        await asyncio.Event().wait()
    with suppress(OSError):
        if side.can_write_eof():
            side.write_eof()
        else:
            side.close()
