"""Calls to a server that speaks recorded shapes of both APIs: retries, bounds, keys, proxies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import structlog
from aiohttp import web

from swe_rollout.engine.chat.base import ChatEngine
from swe_rollout.engine.chat.http import HttpChatEngine, anthropic_format, openai_format
from swe_rollout.engine.errors import (
    BadRequestError,
    EngineLostError,
    InvalidAnswerError,
    OversizedResponseError,
)
from swe_rollout.errors import UnreachableError
from swe_rollout.spec.policy import AnthropicPolicy, OpenaiPolicy
from swe_rollout.testing.extensions.chat_engines import ChatEngineContract
from swe_rollout.types.deadline import Deadline
from unit.engine.chat.chat_parts import ANTHROPIC_BODY, OPENAI_BODY, api, request, sends
from waits import PATIENCE_S, stands, until

KEY = "test-key-0123456789abcdefghij"


@asynccontextmanager
async def openai(url: str, **policy: object) -> AsyncIterator[HttpChatEngine]:
    fields = {"model": "m", "url": url, "retries": 3, **policy}
    found = OpenaiPolicy.model_validate(fields)
    urls = found.urls or (found.url,)
    engine = HttpChatEngine(found, openai_format(found), urls=urls, first_backoff_s=0.001)
    yield engine
    await engine.aclose()


@asynccontextmanager
async def anthropic(url: str, **policy: object) -> AsyncIterator[HttpChatEngine]:
    fields = {"model": "m", "url": url, "retries": 3, **policy}
    found = AnthropicPolicy.model_validate(fields)
    engine = HttpChatEngine(found, anthropic_format(found), urls=[found.url], first_backoff_s=0.001)
    yield engine
    await engine.aclose()


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAT_KEY", KEY)


class TestOpenaiContract(ChatEngineContract):
    """What every chat engine does."""

    @pytest.fixture
    async def engine(self) -> AsyncIterator[ChatEngine]:
        async with api(sends(OPENAI_BODY)) as (url, _), openai(url) as engine:
            yield engine


class TestAnthropicContract(ChatEngineContract):
    """What every chat engine does."""

    @pytest.fixture
    async def engine(self) -> AsyncIterator[ChatEngine]:
        async with api(sends(ANTHROPIC_BODY)) as (url, _), anthropic(url) as engine:
            yield engine


async def test_openai_is_called_where_it_listens_with_its_key() -> None:
    async with (
        api(sends(OPENAI_BODY)) as (url, served),
        openai(f"{url}/v1", api_key_env="CHAT_KEY") as engine,
    ):
        found = await engine.respond(request())
    assert found.message.calls[0].name == "bash"
    ((path, headers, body),) = served.requests
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == f"Bearer {KEY}"
    assert isinstance(body, dict)
    assert body["model"] == "m"


async def test_anthropic_is_called_where_it_listens_with_its_key() -> None:
    async with (
        api(sends(ANTHROPIC_BODY)) as (url, served),
        anthropic(url, api_key_env="CHAT_KEY") as engine,
    ):
        found = await engine.respond(request())
    assert found.message.calls[0].name == "bash"
    ((path, headers, _),) = served.requests
    assert path == "/v1/messages"
    assert (headers["x-api-key"], headers["anthropic-version"]) == (KEY, "2023-06-01")
    assert "Authorization" not in headers


@pytest.mark.parametrize("status", [429, 500])
async def test_a_refused_or_failed_call_is_sent_again(status: int) -> None:
    async with (
        api(sends({}, status=status), sends({}, status=status), sends(OPENAI_BODY)) as (url, api_),
        openai(url) as engine,
    ):
        await engine.respond(request())
    assert len(api_.requests) == 3


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, {"error": {"message": "429 rate limit of 4000 tokens"}}, BadRequestError),
        (200, b"garbage", InvalidAnswerError),
        (302, {}, BadRequestError),
    ],
)
async def test_what_fails_for_good_is_sent_once_we13(
    status: int, body: object, kind: type[Exception]
) -> None:
    async with (
        api(sends(body, status=status, Location="http://elsewhere")) as (url, served),
        openai(url) as engine,
    ):
        with pytest.raises(kind):
            await engine.respond(request())
    assert len(served.requests) == 1


async def test_retry_after_is_heeded_and_the_clock_of_the_episode_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, paused = Deadline(100.0), list[tuple[float, bool]]()
    real = asyncio.sleep

    async def sleep(seconds: float) -> None:
        paused.append((seconds, stands(clock)))
        await real(0)

    async with (
        api(sends({}, status=429, Retry_After="7"), sends(OPENAI_BODY)) as (url, _),
        openai(url) as engine,
    ):
        monkeypatch.setattr(asyncio, "sleep", sleep)
        await engine.respond(request(clock=clock))
    ((seconds, stood),) = [each for each in paused if each[0] > 1]
    assert 7 <= seconds < 7.01
    assert stood


@pytest.mark.parametrize("status", [200, 400, 500])
async def test_an_endless_body_is_cut_off(status: int) -> None:
    async def endless(call: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=status)
        await response.prepare(call)
        with_bytes = bytes(2**16)
        try:
            while True:
                await response.write(with_bytes)
        except ConnectionError:
            return response

    async with api(endless) as (url, served), openai(url) as engine:
        with pytest.raises(OversizedResponseError):
            await engine.respond(request())
    assert len(served.requests) == 1


async def test_a_silent_server_is_a_lost_call() -> None:
    async def silent(call: web.Request) -> web.StreamResponse:
        del call
        await asyncio.sleep(60)
        raise AssertionError

    async with (
        api(silent) as (url, served),
        openai(url, timeout_seconds=0.5, retries=1) as engine,
    ):
        with pytest.raises(EngineLostError):
            await engine.respond(request())
    assert len(served.requests) == 2


async def test_cancelling_ends_a_call() -> None:
    called, ended = asyncio.Event(), asyncio.Event()

    async def silent(call: web.Request) -> web.StreamResponse:
        called.set()
        await until(lambda: call.transport is None or call.transport.is_closing())
        ended.set()
        return web.Response()

    async with api(silent) as (url, _), openai(url) as engine:
        work = asyncio.ensure_future(engine.respond(request()))
        await called.wait()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        await asyncio.wait_for(ended.wait(), PATIENCE_S)


async def test_only_so_many_calls_run_at_once() -> None:
    running, most = 0, 0

    async def count(call: web.Request) -> web.StreamResponse:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.02)
        running -= 1
        return await sends(OPENAI_BODY)(call)

    async with api(count) as (url, _), openai(url, concurrency=2) as engine:
        await asyncio.gather(*(engine.respond(request()) for _ in range(6)))
    assert most == 2


async def test_neither_errors_nor_logs_hold_the_key_we12() -> None:
    async def echo(call: web.Request) -> web.StreamResponse:
        sent = " ".join(f"{name}: {value}" for name, value in call.headers.items())
        return await sends({"error": {"message": sent}}, status=500)(call)

    async with api(echo) as (url, _), openai(url, api_key_env="CHAT_KEY", retries=1) as engine:
        with structlog.testing.capture_logs() as logs, pytest.raises(EngineLostError) as caught:
            await engine.respond(request())
    assert "[redacted]" in caught.value.why
    assert KEY not in f"{caught.value} {caught.value.why} {logs}"
    assert [entry["event"] for entry in logs] == ["engine_call_failed"] * 2
    # Prompts are no part of logs.
    assert "Fix it." not in str(logs)


@pytest.mark.parametrize("status", [200, 404, 405])
async def test_a_server_without_a_list_of_models_is_there(status: int) -> None:
    async with api(sends({}, status=status)) as (url, served), openai(url) as engine:
        assert (await engine.info()).model == "m"
    assert served.requests[0][0] == "/models"


async def test_a_call_that_succeeded_stands_in_for_a_probe() -> None:
    async with api(sends(OPENAI_BODY)) as (url, served), openai(url) as engine:
        await engine.info()
        await engine.respond(request())
        await engine.info()
    assert [path for path, _, _ in served.requests] == ["/models", "/chat/completions"]


@pytest.mark.parametrize("status", [401, 403, 500, 503])
async def test_a_server_that_can_t_be_used_is_unreachable(status: int) -> None:
    async with api(sends({"error": "secret"}, status=status)) as (url, _), openai(url) as engine:
        with pytest.raises(UnreachableError) as caught:
            await engine.info()
    assert "secret" not in f"{caught.value}"


async def test_nothing_at_the_address_is_unreachable() -> None:
    async with openai("http://127.0.0.1:9", retries=0) as engine:
        with pytest.raises(UnreachableError):
            await engine.info()
        with pytest.raises(EngineLostError):
            await engine.respond(request())


async def test_an_episode_keeps_to_one_of_several_servers_c5() -> None:
    async with (
        api(sends(OPENAI_BODY)) as (one, first),
        api(sends(OPENAI_BODY)) as (two, second),
        openai(one, urls=[one, two]) as engine,
    ):
        for number in range(40):
            await engine.respond(request(instance=f"task-{number}"))
            await engine.respond(request(instance=f"task-{number}"))
    counts = (len(first.requests), len(second.requests))
    assert sum(counts) == 80
    assert all(count % 2 == 0 and count >= 20 for count in counts)


async def test_an_episode_moves_when_its_server_can_t_be_reached_c5() -> None:
    dead = "http://127.0.0.1:9"
    async with api(sends(OPENAI_BODY)) as (url, served), openai(url, urls=[dead, url]) as engine:
        assert (await engine.info()).model == "m"
        for number in range(10):
            await engine.respond(request(instance=f"task-{number}"))
            engine.release(request(instance=f"task-{number}").episode)
    assert len(served.requests) == 11


async def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with api(sends(OPENAI_BODY)) as (url, served):
        monkeypatch.setenv("http_proxy", url)
        monkeypatch.setenv("no_proxy", "")
        async with openai("http://api.example.test/v1") as engine:
            await engine.respond(request())
    assert served.requests[0][1]["Host"] == "api.example.test"
