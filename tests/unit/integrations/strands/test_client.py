"""The client against a small server of HTTP, which fails as told."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import AsyncIterator
from types import SimpleNamespace

import pytest
from aiohttp import web

from swe_rollout.integrations.strands.client import (
    SGLangClient,
    get_client,
    get_client_from_slime_args,
)
from swe_rollout.integrations.strands.exceptions import (
    SGLangConnectionError,
    SGLangContextLengthError,
    SGLangDecodingError,
    SGLangHTTPError,
    SGLangThrottledError,
)
from swe_rollout.launcher import sync


class Server:
    """Answers `/generate` with one prepared response after the other."""

    def __init__(self) -> None:
        self.url = ""
        self.bodies: list[dict[str, object]] = []
        self.aborted: list[str] = []
        self.responses: list[tuple[int, str]] = []
        self.info: tuple[int, str] = (200, '{"model_path": "m", "has_image_understanding": true}')
        self.info_calls = 0
        self.hang_s = 0.0
        self.has_three = asyncio.Event()

    async def generate(self, request: web.Request) -> web.Response:
        self.bodies.append(await request.json())
        if len(self.bodies) == 3:
            self.has_three.set()
        await asyncio.sleep(self.hang_s)
        status, text = self.responses.pop(0)
        return web.Response(status=status, text=text)

    async def abort(self, request: web.Request) -> web.Response:
        self.aborted.append((await request.json())["rid"])
        return web.Response()

    async def model_info(self, request: web.Request) -> web.Response:
        del request
        self.info_calls += 1
        return web.Response(status=self.info[0], text=self.info[1])

    async def health(self, request: web.Request) -> web.Response:
        del request
        return web.Response()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    own = Server()
    app = web.Application()
    app.router.add_post("/generate", own.generate)
    app.router.add_post("/abort_request", own.abort)
    app.router.add_get("/model_info", own.model_info)
    app.router.add_get("/health", own.health)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    own.url = f"http://{host}:{port}"
    yield own
    await runner.cleanup()


def client(server: Server, **options: float | None) -> SGLangClient:
    return SGLangClient(server.url, retry_delay=0.01, **options)  # type: ignore[arg-type]


async def test_a_call_is_posted_once_and_returned_as_it_is(server: Server) -> None:
    """S1."""
    server.responses = [(200, '{"text": "hi", "meta_info": {}}')]
    async with client(server) as own:
        assert await own.generate([1, 2], sampling_params={"n": 1}, stream=True) == {
            "text": "hi",
            "meta_info": {},
        }
    (body,) = server.bodies
    assert body.pop("rid")
    assert body == {"input_ids": [1, 2], "sampling_params": {"n": 1}, "stream": False}


async def test_load_is_waited_for_and_a_bad_request_is_not(server: Server) -> None:
    """S2, WS7: a permanent 400 is not sent 60 times."""
    server.responses = [(503, "queue full"), (429, "slow"), (200, "{}")]
    async with client(server, max_retries=2) as own:
        assert await own.generate([1]) == {}
        assert len(server.bodies) == 3
        server.responses = [(503, "queue full")] * 3
        with pytest.raises(SGLangThrottledError):
            await own.generate([1])
        for status, kind in (
            (400, SGLangHTTPError),
            (401, SGLangHTTPError),
            (500, SGLangHTTPError),
        ):
            server.bodies.clear()
            server.responses = [(status, "no")]
            with pytest.raises(kind) as raised:
                await own.generate([1])
            assert raised.value.status == status
            assert len(server.bodies) == 1
        server.responses = [(400, "it exceeds the model's maximum context length of 8 tokens")]
        with pytest.raises(SGLangContextLengthError):
            await own.generate([1])


@pytest.mark.parametrize("text", ["", "[1]", "<html>", '{"a":', "\x00", "[" * 9000])
async def test_a_response_that_is_no_object_is_an_error(server: Server, text: str) -> None:
    server.responses = [(200, text)]
    async with client(server) as own:
        with pytest.raises(SGLangDecodingError):
            await own.generate([1])


async def test_a_call_that_is_given_up_is_ended_on_the_server(server: Server) -> None:
    """WS7: a time-out never leaves the same generation running beside its repetition."""
    server.hang_s = 30.0
    server.responses = [(200, "{}")] * 3
    async with client(server, timeout=1, max_retries=1) as own:
        with pytest.raises(SGLangConnectionError):
            await own.generate([1])
    assert server.aborted == [body["rid"] for body in server.bodies]
    assert len(set(server.aborted)) == 2
    async with client(server, timeout=None) as own:
        call = asyncio.create_task(own.generate([1]))
        await asyncio.wait_for(server.has_three.wait(), 60)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert server.aborted[2:] == [server.bodies[2]["rid"]]


async def test_a_model_is_asked_about_once(server: Server) -> None:
    """S3."""
    async with client(server) as own:
        assert await own.health()
        assert await own.is_multimodal()
        assert await own.is_multimodal()
        assert server.info_calls == 1
        assert await own.get_model_info() == await own.model_info()
        server.info = (500, "")
        assert await own.model_info() is None


async def test_a_server_that_is_gone_is_neither_healthy_nor_known() -> None:
    """S3."""
    async with SGLangClient("http://127.0.0.1:9", max_retries=1, retry_delay=0.01) as own:
        assert not await own.health()
        assert await own.model_info() is None
        assert not await own.is_multimodal()
        with pytest.raises(SGLangConnectionError):
            await own.generate([1])


async def test_an_engine_is_made_once_for_each_vocabulary(server: Server) -> None:
    async with client(server) as own:
        engine = await own.engine(100)
        assert await own.engine(100) is engine
        assert await own.engine(200) is not engine
        await own.close()
        assert await own.engine(100) is not engine


def test_each_event_loop_has_its_own_connections_and_closes_them() -> None:
    """WS8."""
    own = SGLangClient("http://127.0.0.1:9")

    async def use() -> object:
        assert not await own.health()
        return await own.engine(100)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert asyncio.run(use()) is not asyncio.run(use())
        gc.collect()
    assert sync._HELD == {}


def test_clients_are_shared_by_their_arguments() -> None:
    """S14."""
    assert get_client("http://a:1") is get_client("http://a:1")
    assert get_client("http://a:1") is not get_client("http://a:1", timeout=1.0)
    args = SimpleNamespace(
        sglang_router_ip="10.0.0.1",
        sglang_router_port=3000,
        sglang_server_concurrency=512,
        rollout_num_gpus=8,
        rollout_num_gpus_per_engine=2,
    )
    own = get_client_from_slime_args(args)
    assert own is get_client_from_slime_args(args)
    assert own.base_url == "http://10.0.0.1:3000"
    assert own._policy.concurrency == 2048
