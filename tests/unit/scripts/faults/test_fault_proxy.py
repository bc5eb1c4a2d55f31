"""FaultProxy: each fault, as a real client sees it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rollout_dev.dev_cluster import pki
from rollout_dev.dev_cluster.checkout import Checkout
from rollout_dev.faults.fault_proxy import (
    AcceptMode,
    CutMode,
    FaultProxy,
    FaultRules,
    ProxiedConnection,
    StreamFilter,
)
from rollout_dev.faults.relay import tls_ends
from waits import PATIENCE_S

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def echo_proxy() -> AsyncIterator[FaultProxy]:
    """A proxy in front of an echo server."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with FaultProxy("127.0.0.1", server.sockets[0].getsockname()[1]) as proxy:
        yield proxy
    server.close()
    await server.wait_closed()


async def dial(proxy: FaultProxy) -> Streams:
    return await asyncio.open_connection("127.0.0.1", proxy.port)


async def echoed(streams: Streams, data: bytes) -> bytes:
    reader, writer = streams
    writer.write(data)
    async with asyncio.timeout(PATIENCE_S):
        return await reader.readexactly(len(data))


async def test_without_faults_bytes_and_ends_pass_through() -> None:
    async with echo_proxy() as proxy:
        reader, writer = streams = await dial(proxy)
        assert await echoed(streams, b"x" * 100_000) == b"x" * 100_000
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
        assert proxy.accepted == 1


async def test_a_cut_by_reset_is_an_error_and_one_in_order_is_an_end() -> None:
    async with echo_proxy() as proxy:
        reader, _ = streams = await dial(proxy)
        await echoed(streams, b"a")
        proxy.cut(CutMode.RESET)
        with pytest.raises(ConnectionResetError):
            await reader.read()
        reader, writer = streams = await dial(proxy)
        await echoed(streams, b"a")
        proxy.cut(CutMode.FIN)
        assert await reader.read() == b""
        writer.close()


async def test_a_connection_is_cut_after_a_number_of_bytes() -> None:
    async with echo_proxy() as proxy:
        proxy.rules = FaultRules(cut_after=10)
        reader, _ = streams = await dial(proxy)
        await echoed(streams, b"123456789")
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await echoed(streams, b"0")
        assert reader.at_eof() or reader.exception()


async def test_one_bit_is_flipped_at_the_given_offset() -> None:
    async with echo_proxy() as proxy:
        proxy.rules = FaultRules(corrupt_after=2)
        streams = await dial(proxy)
        assert await echoed(streams, b"abcd") == b"abbd"
        assert await echoed(streams, b"abcd") == b"abcd"
        streams[1].close()


async def test_a_silent_connection_stays_open_and_new_ones_work() -> None:
    async with echo_proxy() as proxy:
        reader, writer = streams = await dial(proxy)
        await echoed(streams, b"a")
        proxy.silence()
        writer.write(b"b")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await reader.read(1)
        other = await dial(proxy)
        assert await echoed(other, b"c") == b"c"
        for side in (writer, other[1]):
            side.close()


async def test_a_stalled_connection_loses_nothing() -> None:
    async with echo_proxy() as proxy:
        reader, writer = streams = await dial(proxy)
        await echoed(streams, b"a")
        proxy.rules = FaultRules(stalled=True)
        writer.write(b"b")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await reader.read(1)
        proxy.rules = FaultRules()
        async with asyncio.timeout(PATIENCE_S):
            assert await reader.readexactly(1) == b"b"
        writer.close()


async def test_new_connections_can_be_refused_or_slow() -> None:
    async with echo_proxy() as proxy:
        proxy.rules = FaultRules(accept=AcceptMode.REFUSED)
        reader, writer = await dial(proxy)
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()
        proxy.rules = FaultRules(accept=AcceptMode.SLOW, slow_s=0.2)
        started = time.monotonic()
        streams = await dial(proxy)
        await echoed(streams, b"a")
        assert time.monotonic() - started >= 0.2
        streams[1].close()


async def test_a_delay_holds_every_piece() -> None:
    async with echo_proxy() as proxy:
        proxy.rules = FaultRules(delay_s=0.1)
        streams = await dial(proxy)
        started = time.monotonic()
        await echoed(streams, b"a")
        assert time.monotonic() - started >= 0.2
        streams[1].close()


class Upper(StreamFilter):
    """Shows that a proxy sees what a connection carries."""

    def filter(self, data: bytes) -> bytes:
        return data.upper()


async def test_with_keys_of_a_cluster_a_proxy_ends_tls_on_both_sides(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path)
    await asyncio.to_thread(pki.ensure, checkout, port=1)
    tls = tls_ends(checkout.pki)

    async def hello(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    server = await asyncio.start_server(hello, "127.0.0.1", 0, ssl=tls.server)
    async with FaultProxy("127.0.0.1", server.sockets[0].getsockname()[1], tls=tls) as proxy:
        connect = proxy.connect

        async def shouting(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter
        ) -> tuple[ProxiedConnection, asyncio.StreamReader]:
            connection, from_server = await connect(reader, writer)
            connection.to_client = Upper()
            return connection, from_server

        proxy.connect = shouting  # type: ignore[method-assign]
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port, ssl=tls.client)
        async with asyncio.timeout(PATIENCE_S):
            assert await reader.read() == b"HELLO"
        writer.close()
    server.close()
