"""The proxies of the cluster tests: each fault of a connection, and who may use them.

Faults of exec streams are those of `scripts/conformance exec`, which has a result for each.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec
import pytest
from aiohttp import web
from kubernetes.client import Configuration

from rollout_dev.faults import relay
from rollout_dev.faults.exec_proxy import ExecProxy
from rollout_dev.faults.fault_proxy import (
    AcceptMode,
    CutError,
    CutMode,
    FaultProxy,
    FaultRules,
)
from swe_rollout.cluster.config import Access, Credentials, load_access
from waits import PATIENCE_S

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"


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


async def test_bytes_are_counted_to_cut_a_connection_and_to_flip_a_bit() -> None:
    async with echo_proxy() as proxy:
        proxy.rules = FaultRules(cut_after=10)
        reader, _ = streams = await dial(proxy)
        await echoed(streams, b"123456789")
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await echoed(streams, b"0")
        assert reader.at_eof() or reader.exception()
        proxy.rules = FaultRules(corrupt_after=2)
        streams = await dial(proxy)
        assert await echoed(streams, b"abcd") == b"abbd"
        assert await echoed(streams, b"abcd") == b"abcd"
        streams[1].close()


async def test_a_silent_connection_stays_open_and_new_ones_work() -> None:
    async with echo_proxy() as proxy:
        silent = await dial(proxy)
        await echoed(silent, b"a")
        proxy.silence()
        silent[1].write(b"b")
        other = await dial(proxy)
        assert await echoed(other, b"c") == b"c"
        # The proxy has passed on what came later by now, and nothing of the silent one.
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await silent[0].read(1)
        for side in (silent[1], other[1]):
            side.close()


async def test_a_stalled_connection_loses_nothing() -> None:
    async with echo_proxy() as proxy:
        reader, writer = streams = await dial(proxy)
        await echoed(streams, b"a")
        proxy.rules = FaultRules(stalled=True)
        writer.write(b"b")
        reading = asyncio.create_task(reader.readexactly(1))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await asyncio.shield(reading)
        proxy.rules = FaultRules()
        async with asyncio.timeout(PATIENCE_S):
            assert await reading == b"b"
        writer.close()


async def test_new_connections_can_be_refused_or_slow_and_pieces_delayed() -> None:
    async with echo_proxy() as proxy:
        proxy.rules = FaultRules(accept=AcceptMode.REFUSED)
        reader, writer = await dial(proxy)
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()
        loop = asyncio.get_running_loop()
        for rules in (
            FaultRules(accept=AcceptMode.SLOW, slow_s=0.2),
            FaultRules(delay_s=0.1),  # in either direction
        ):
            proxy.rules = rules
            began = loop.time()
            streams = await dial(proxy)
            await echoed(streams, b"a")
            assert loop.time() - began >= 0.2
            streams[1].close()


def test_some_responses_are_errors_each_of_which_ends_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = random.Random(0)
    seen = []
    for _ in range(2000):
        errors = relay.RandomErrors(rng)
        assert errors.filter(RESPONSE) == RESPONSE
        errors.is_on = True
        seen.append(errors.filter(RESPONSE))
    assert 50 <= sum(each != RESPONSE for each in seen) <= 200

    monkeypatch.setattr(relay, "_ERROR_CHANCE", 1.0)
    assert errors.filter(b"body of the response before") == b"body of the response before"
    assert errors.filter(RESPONSE).startswith(b"HTTP/1.1 503 ")
    with pytest.raises(CutError):
        errors.filter(b"body")


@asynccontextmanager
async def exec_proxy(tmp_path: Path) -> AsyncIterator[tuple[ExecProxy, str]]:
    """A proxy in front of an API server, and its address for clients."""

    async def version(request: web.Request) -> web.Response:
        return web.Response(text=f"{request.headers['Authorization']} {await request.text()}")

    app = web.Application()
    app.router.add_post("/version", version)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port, *_ = runner.addresses[0]
    configuration = Configuration()
    configuration.api_key["authorization"] = "Bearer a-token"
    access = Access(
        server=f"http://{host}:{port}",
        namespace="default",
        credentials=Credentials(configuration),
        tls=None,
        tls_server_name=None,
        proxy=None,
    )
    async with ExecProxy(access) as proxy:
        file = tmp_path / f"kubeconfig-{proxy.port}"
        proxy.write_kubeconfig(file, namespace="n")
        (cluster,) = msgspec.json.decode(file.read_bytes())["clusters"]
        yield proxy, cluster["cluster"]["server"]
    await runner.cleanup()


async def test_requests_need_the_secret_path_of_the_kubeconfig(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with exec_proxy(tmp_path) as (proxy, address), aiohttp.ClientSession() as session:
        async with session.post(f"{address}/version", data=b"body") as response:
            assert await response.text() == "Bearer a-token body"
        outside = address[: address.rindex("/")]
        with pytest.raises(aiohttp.ClientError):
            await session.post(f"{outside}/version", data=b"body", raise_for_status=True)
        file = tmp_path / "kubeconfig"
        context = proxy.write_kubeconfig(file, namespace="elsewhere")
        monkeypatch.setenv("KUBECONFIG", str(file))
        access = await load_access(context)
        assert (access.server, access.namespace, access.tls) == (address, "elsewhere", None)
        assert file.stat().st_mode & 0o777 == 0o600
