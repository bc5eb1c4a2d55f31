"""The client against a local HTTP server with prepared replies: retries, aborts, errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from aiohttp import web

from swe_rollout.engine.base import TokenEngine
from swe_rollout.engine.errors import (
    BadRequestError,
    CallLoss,
    ContextOverflowError,
    EngineLostError,
    InvalidAnswerError,
    UnauthorizedError,
)
from swe_rollout.engine.sglang.engine import SglangEngine
from swe_rollout.errors import EngineError, InternalError, UnreachableError
from swe_rollout.spec.policy import SglangPolicy
from swe_rollout.tokens.log import InputIds
from swe_rollout.types.deadline import Deadline
from unit.engine.engine_parts import PreparedServer, Reply, request, serving
from waits import PATIENCE_S, stands

VOCAB_SIZE = 10
REQUEST = request(instance="café")
OK = json.dumps(
    {
        "meta_info": {
            "finish_reason": {"type": "stop", "matched": 9},
            "prompt_tokens": 3,
            "completion_tokens": 1,
            "output_token_logprobs": [[-0.5, 9, None]],
        }
    }
)


@asynccontextmanager
async def client_of(
    engine: PreparedServer,
    *,
    retries: int = 2,
    timeout_s: float = 20.0,
    key_env: str | None = None,
    first_backoff_s: float = 0.001,
) -> AsyncIterator[SglangEngine]:
    async with serving(engine.app(info_path="/get_model_info")) as url:
        policy = SglangPolicy(
            url=url, retries=retries, timeout_seconds=timeout_s, api_key_env=key_env
        )
        client = SglangEngine(policy, vocab_size=VOCAB_SIZE, first_backoff_s=first_backoff_s)
        yield client
        await client.aclose()


async def test_it_is_a_token_engine_and_reads_the_old_path_of_older_servers() -> None:
    async with client_of(PreparedServer([Reply(body=OK)])) as client:
        assert isinstance(client, TokenEngine)
        info = await client.info()
    assert (info.model, info.context_tokens, info.weight_version) == ("x", 40, "v3")


async def test_a_call_names_its_episode_and_clips_its_tokens_to_the_context() -> None:
    engine = PreparedServer([Reply(body=OK)])
    async with client_of(engine) as client:
        generation = await client.generate(REQUEST)
    assert generation.token_ids == (9,)
    params = engine.calls[0]["sampling_params"]
    assert isinstance(params, dict)
    assert params["max_new_tokens"] == 37
    assert engine.headers[0]["X-SMG-Routing-Key"] == "job/caf%C3%A9/0"
    assert len(str(engine.calls[0]["rid"])) == 32


async def test_without_a_known_context_the_requests_own_bound_holds() -> None:
    engine = PreparedServer([Reply(body=OK)], served_context=None)
    async with client_of(engine) as client:
        await client.generate(REQUEST)
    params = engine.calls[0]["sampling_params"]
    assert isinstance(params, dict)
    assert params["max_new_tokens"] == 50


async def test_a_full_context_is_refused_here() -> None:
    engine = PreparedServer([Reply(body=OK)], served_context=3)
    async with client_of(engine) as client:
        with pytest.raises(ContextOverflowError):
            await client.generate(REQUEST)
    assert engine.calls == []


@pytest.mark.parametrize("ids", [[], [-1], [VOCAB_SIZE]])
async def test_ids_that_would_kill_the_server_are_never_sent(ids: list[int]) -> None:
    engine = PreparedServer([Reply(body=OK)])
    async with client_of(engine) as client:
        with pytest.raises(InternalError):
            await client.generate(replace(REQUEST, input_ids=InputIds.of(ids)))
    assert engine.calls == []


@pytest.mark.parametrize("status", [429, 503])
async def test_a_rejection_for_load_is_retried_with_a_new_rid(status: int) -> None:
    engine = PreparedServer([Reply(status, "{}", {"Retry-After": "0"}), Reply(body=OK)])
    async with client_of(engine) as client:
        assert (await client.generate(REQUEST)).token_ids == (9,)
    assert len(set(engine.rids())) == 2
    # It never ran, so there is nothing to abort.
    assert engine.aborted == []


async def test_retry_after_and_the_episodes_clock_are_heeded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine, clock, paused = (
        PreparedServer([Reply(503, "{}", {"Retry-After": "5"}), Reply(body=OK)]),
        Deadline(9),
        {},
    )
    real = asyncio.sleep

    async def sleep(seconds: float) -> None:
        paused[round(seconds)] = stands(clock)
        await real(0)

    async with client_of(engine, retries=1) as client:
        monkeypatch.setattr(asyncio, "sleep", sleep)
        await client.generate(replace(REQUEST, clock=clock))
    assert paused[5]


@pytest.mark.parametrize("reply", [Reply(500, "{}"), Reply(504, "timeout")])
async def test_a_failed_call_is_aborted_before_its_successor_starts(reply: Reply) -> None:
    engine = PreparedServer([reply, Reply(body=OK)])
    async with client_of(engine) as client:
        assert (await client.generate(REQUEST)).token_ids == (9,)
    first, second = engine.rids()
    assert engine.aborted == [first]
    assert first != second


async def test_a_dropped_call_is_aborted_and_left_to_the_pool() -> None:
    engine = PreparedServer([Reply(cut=True)])
    async with client_of(engine) as client:
        with pytest.raises(EngineLostError) as caught:
            await client.generate(REQUEST)
    assert caught.value.loss is CallLoss.DROPPED
    assert engine.aborted == engine.rids()


async def test_a_call_that_times_out_is_aborted_and_not_retried() -> None:
    engine = PreparedServer([Reply(hang=True)])
    async with client_of(engine, timeout_s=1) as client:
        with pytest.raises(EngineLostError, match="no response within"):
            await client.generate(REQUEST)
    assert engine.aborted == engine.rids()
    assert len(engine.calls) == 1


async def test_a_cancelled_call_is_aborted() -> None:
    engine = PreparedServer([Reply(hang=True)])
    async with client_of(engine) as client:
        call = asyncio.create_task(client.generate(REQUEST))
        await engine.called.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.wait_for(engine.was_aborted.wait(), PATIENCE_S)
    assert engine.aborted == engine.rids()


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply(400, '{"error": "unknown field"}'), BadRequestError),
        (Reply(401, '{"error": "Unauthorized"}'), UnauthorizedError),
        (Reply(404, '{"detail": "Not Found"}'), BadRequestError),
        (Reply(200, '{"text": "tokens?"}'), InvalidAnswerError),
    ],
)
async def test_an_error_that_a_retry_cannot_fix_is_raised_at_once(
    reply: Reply, kind: type[EngineError]
) -> None:
    engine = PreparedServer([reply])
    async with client_of(engine) as client:
        with pytest.raises(kind):
            await client.generate(REQUEST)
    assert len(engine.calls) == 1


async def test_the_key_is_sent_and_shown_nowhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ENGINE_KEY", "a-secret-key")
    engine = PreparedServer([Reply(503, "{}"), Reply(401, '{"error": "Unauthorized"}')])
    async with client_of(engine, key_env="ENGINE_KEY") as client:
        with pytest.raises(UnauthorizedError) as caught:
            await client.generate(REQUEST)
        assert "a-secret-key" not in repr(client)
    assert engine.headers[0]["Authorization"] == "Bearer a-secret-key"
    shown = capsys.readouterr()
    assert "engine_call_failed" in shown.out + shown.err
    assert "a-secret-key" not in shown.out + shown.err + repr(caught.value)


async def test_an_engine_that_is_down_is_unreachable_for_info_and_lost_for_a_call() -> None:
    policy = SglangPolicy(url="http://127.0.0.1:1", retries=1)
    client = SglangEngine(policy, vocab_size=VOCAB_SIZE, first_backoff_s=0.001)
    with pytest.raises(UnreachableError) as caught:
        await client.info()
    assert "start the server" in caught.value.fix
    with pytest.raises(EngineLostError, match="can be reached at"):
        await client.generate(REQUEST)
    await client.aclose()


async def test_a_server_of_another_kind_is_named_as_such() -> None:
    async with serving(web.Application()) as url:
        client = SglangEngine(SglangPolicy(url=url), vocab_size=VOCAB_SIZE)
        with pytest.raises(UnreachableError, match="not an SGLang engine"):
            await client.info()
        await client.aclose()
