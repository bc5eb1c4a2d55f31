"""ExecProxy: each fault inside exec streams, as a real client sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import aiohttp
import msgspec
import pytest
from aiohttp import web
from kubernetes.client import Configuration

from rollout_dev.faults.exec_proxy import GARBAGE, ExecProxy, StreamFault, status_error
from swe_rollout.cluster.config import Access, Credentials, load_access
from waits import PATIENCE_S, until

EXEC = "/api/v1/namespaces/n/pods/p/exec"
MESSAGES = (b"\x01" + bytes(range(256)), b"\x02err", b'\x03{"status":"Success"}')


@asynccontextmanager
async def exec_proxy(tmp_path: Path) -> AsyncIterator[tuple[ExecProxy, str]]:
    """A proxy in front of an exec server, and its address for clients."""

    async def run(request: web.Request) -> web.WebSocketResponse:
        assert request.headers["Authorization"] == "Bearer a-token"
        assert request.path == EXEC
        assert "exec_proxy" not in request.headers
        socket = web.WebSocketResponse(protocols=("v5.channel.k8s.io",))
        await socket.prepare(request)
        for message in MESSAGES:
            await socket.send_bytes(message)
        if request.query.get("hold"):
            await socket.receive()
        return socket

    async def version(request: web.Request) -> web.Response:
        return web.Response(text=f"{request.headers['Authorization']} {await request.text()}")

    app = web.Application()
    app.router.add_get(EXEC, run)
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


async def received(address: str, query: str = "") -> list[aiohttp.WSMessage]:
    """All messages of one exec stream, the last one being its end."""
    protocols = ("v5.channel.k8s.io",)
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{address}{EXEC}{query}", protocols=protocols) as socket,
    ):
        assert socket.protocol == protocols[0]
        messages = []
        async with asyncio.timeout(PATIENCE_S):
            while True:
                messages.append(await socket.receive())
                if messages[-1].type is not aiohttp.WSMsgType.BINARY:
                    return messages


def data(messages: list[aiohttp.WSMessage]) -> list[bytes]:
    return [m.data for m in messages if m.type is aiohttp.WSMsgType.BINARY]


async def test_an_exec_stream_passes_with_the_proxys_credentials(tmp_path: Path) -> None:
    async with exec_proxy(tmp_path) as (_, address):
        assert data(await received(address)) == list(MESSAGES)


async def test_a_split_message_keeps_its_channel_and_its_bytes(tmp_path: Path) -> None:
    async with exec_proxy(tmp_path) as (proxy, address):
        proxy.stream_fault = StreamFault.SPLIT
        *stdout, stderr, status = data(await received(address))
        assert len(stdout) == 86
        assert {part[:1] for part in stdout} == {b"\x01"}
        assert b"".join(part[1:] for part in stdout) == MESSAGES[0][1:]
        assert (stderr, status) == MESSAGES[1:]


async def test_fragments_are_one_message_to_a_client(tmp_path: Path) -> None:
    async with exec_proxy(tmp_path) as (proxy, address):
        proxy.stream_fault = StreamFault.FRAGMENTED
        assert data(await received(address)) == list(MESSAGES)


async def test_unknown_channels_are_inserted(tmp_path: Path) -> None:
    async with exec_proxy(tmp_path) as (proxy, address):
        proxy.stream_fault = StreamFault.STRANGE
        found = data(await received(address))
        assert [m for m in found if m in MESSAGES] == list(MESSAGES)
        assert len(found) == 5 * len(MESSAGES)


async def test_the_status_can_be_dropped(tmp_path: Path) -> None:
    async with exec_proxy(tmp_path) as (proxy, address):
        proxy.stream_fault = StreamFault.NO_STATUS
        messages = await received(address)
        assert data(messages) == list(MESSAGES[:2])
        assert messages[-1].type is aiohttp.WSMsgType.CLOSE
        proxy.stream_fault = StreamFault.NO_END
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await received(address)


async def test_a_status_and_garbage_can_be_sent_in_the_servers_place(tmp_path: Path) -> None:
    async with exec_proxy(tmp_path) as (proxy, address):
        for injected, ended in (
            (status_error("container is gone"), aiohttp.WSMsgType.CLOSE),
            (GARBAGE, aiohttp.WSMsgType.ERROR),
        ):
            task = asyncio.create_task(received(address, "?hold=1"))
            await until(lambda: proxy.execs)
            (connection,) = proxy.execs
            connection.inject(injected)
            messages = await task
            assert messages[-1].type is ended
            assert (b"container is gone" in data(messages)[-1]) is (injected != GARBAGE)
            proxy.cut()
            await until(lambda: not proxy.execs)


async def test_other_requests_pass_and_foreign_ones_do_not(tmp_path: Path) -> None:
    async with exec_proxy(tmp_path) as (_, address), aiohttp.ClientSession() as session:
        async with session.post(f"{address}/version", data=b"body") as response:
            assert await response.text() == "Bearer a-token body"
        outside = address[: address.rindex("/")]
        with pytest.raises(aiohttp.ClientError):
            await session.post(f"{outside}/version", data=b"body", raise_for_status=True)


async def test_the_kubeconfig_is_what_our_own_client_understands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with exec_proxy(tmp_path) as (proxy, address):
        file = tmp_path / "kubeconfig"
        context = proxy.write_kubeconfig(file, namespace="elsewhere")
        monkeypatch.setenv("KUBECONFIG", str(file))
        access = await load_access(context)
        assert (access.server, access.namespace) == (address, "elsewhere")
        assert file.stat().st_mode & 0o777 == 0o600
        assert replace(access, server="").tls is None
