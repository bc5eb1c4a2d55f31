"""The client against a small server of HTTP, which fails as told."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from swe_rollout.engine.errors import (
    BadRequestError,
    ContextOverflowError,
    EngineLostError,
    InvalidAnswerError,
    OversizedResponseError,
    UnauthorizedError,
    UnavailableError,
)
from swe_rollout.errors import EngineError, SweRolloutError, UnreachableError
from swe_rollout.integrations.strands.client import (
    SGLangClient,
    get_client,
    get_client_from_slime_args,
)
from swe_rollout.integrations.strands.exceptions import (
    SGLangClientError,
    SGLangConnectionError,
    SGLangContextLengthError,
    SGLangDecodingError,
    SGLangHTTPError,
    SGLangThrottledError,
    client_error,
)
from swe_rollout.launcher import sync
from unit.engine.engine_parts import PreparedServer, Reply, serving
from waits import until

INFO = '{"model_path": "m", "has_image_understanding": true}'


@asynccontextmanager
async def served(*replies: Reply) -> AsyncIterator[tuple[PreparedServer, str]]:
    own = PreparedServer(list(replies), info=Reply(body=INFO))
    async with serving(own.app()) as url:
        yield own, url


def client(url: str, **options: Any) -> SGLangClient:
    return SGLangClient(url, retry_delay=0.01, **options)


async def test_a_call_is_posted_once_and_returned_as_it_is() -> None:
    """S1."""
    async with served(Reply(body='{"text": "hi"}')) as (server, url), client(url) as own:
        found = await own.generate([1, 2], sampling_params={"n": 1}, stream=True)
    assert found == {"text": "hi"}
    (body,) = server.calls
    assert body.pop("rid")
    assert body == {"input_ids": [1, 2], "sampling_params": {"n": 1}, "stream": False}


async def test_load_is_waited_for() -> None:
    """S2."""
    full = Reply(503, "queue full")
    async with (
        served(full, Reply(429, "slow"), Reply(), full) as (server, url),
        client(url, max_retries=2) as own,
    ):
        assert await own.generate([1]) == {}
        assert len(server.calls) == 3
        with pytest.raises(SGLangThrottledError) as raised:
            await own.generate([1])
    assert (raised.value.status, raised.value.body) == (503, "queue full")
    assert len(server.calls) == 6


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        *((status, "no", SGLangHTTPError) for status in (400, 401, 404, 500)),
        # "exceed" in a text is no full context.
        (400, "temperature must not exceed 2", SGLangHTTPError),
        (400, "it exceeds the model's maximum context length of 8", SGLangContextLengthError),
        *((200, text, SGLangDecodingError) for text in ("", "[1]", "<html>", '{"a":', "[" * 9000)),
    ],
)
async def test_what_fails_for_good_is_sent_once(
    status: int, text: str, kind: type[SGLangClientError]
) -> None:
    """S4, WS7: a permanent 400 is not sent 60 times."""
    async with served(Reply(status, text)) as (server, url), client(url) as own:
        with pytest.raises(kind) as raised:
            await own.generate([1])
    assert len(server.calls) == 1
    assert type(raised.value) is kind
    if isinstance(raised.value, SGLangHTTPError):
        assert (raised.value.status, raised.value.body) == (status, text)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ContextOverflowError("full"), SGLangContextLengthError),
        (UnavailableError("full"), SGLangThrottledError),
        (BadRequestError("bad"), SGLangHTTPError),
        (UnauthorizedError("key"), SGLangHTTPError),
        (InvalidAnswerError("no ids"), SGLangDecodingError),
        (UnreachableError("gone"), SGLangConnectionError),
        (OversizedResponseError("too long"), SGLangDecodingError),
        (EngineLostError("gone"), SGLangConnectionError),
        (EngineError("odd"), SGLangClientError),
    ],
)
def test_an_error_that_is_no_response_has_a_name_too(
    error: SweRolloutError, kind: type[SGLangClientError]
) -> None:
    """S4."""
    assert type(client_error(error)) is kind
    assert issubclass(kind, SGLangClientError)


async def test_a_call_that_is_given_up_is_ended_on_the_server() -> None:
    """WS7: a time-out never leaves the same generation running beside its repetition."""
    async with (
        served(Reply(hang=True)) as (server, url),
        client(url, timeout=1, max_retries=0) as own,
    ):
        with pytest.raises(SGLangConnectionError):
            await own.generate([1])
    assert server.aborted == server.rids()
    async with served(Reply(hang=True)) as (server, url), client(url, timeout=None) as own:
        call = asyncio.create_task(own.generate([1]))
        await server.called.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert server.aborted == server.rids()


async def test_a_model_is_asked_about_once() -> None:
    """S3."""
    async with served() as (server, url), client(url) as own:
        assert await own.health()
        assert await own.is_multimodal()
        assert await own.is_multimodal()
        assert server.asked == 1
        assert await own.get_model_info() == await own.model_info()
        server.info = Reply(500)
        assert await own.model_info() is None


async def test_a_server_that_is_gone_is_neither_healthy_nor_known() -> None:
    """S3."""
    async with SGLangClient("http://127.0.0.1:9", max_retries=1, retry_delay=0.01) as own:
        assert not await own.health()
        assert await own.model_info() is None
        assert not await own.is_multimodal()
        with pytest.raises(SGLangConnectionError):
            await own.generate([1])


async def test_an_engine_is_made_once_for_each_vocabulary() -> None:
    async with client("http://127.0.0.1:9") as own:
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


async def test_a_client_that_nobody_has_any_more_is_closed() -> None:
    own = SGLangClient("http://127.0.0.1:9")
    assert not await own.health()
    assert len(sync._HELD) == 1
    del own
    gc.collect()
    await until(lambda: sync._HELD == {})


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
