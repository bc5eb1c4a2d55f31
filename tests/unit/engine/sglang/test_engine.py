"""The client against a local HTTP server with prepared replies: retries, aborts, errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest
from aiohttp import web

from swe_rollout.engine.base import GenerateRequest, TokenEngine
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
from swe_rollout.spec.policy import Sampling, SglangPolicy
from swe_rollout.tokens.log import InputIds
from swe_rollout.types.deadline import Deadline
from swe_rollout.types.episode import EpisodeId
from unit.engine.engine_parts import serving
from waits import PATIENCE_S, stands

VOCAB_SIZE = 10
REQUEST = GenerateRequest(
    episode=EpisodeId("job", "café", 0),
    turn=0,
    input_ids=InputIds.of([1, 2, 3]),
    max_new_tokens=50,
    sampling=Sampling(),
    stop_token_ids=(9,),
)
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


@dataclass(frozen=True, slots=True)
class Reply:
    """One response to `/generate`."""

    status: int = 200
    body: str = OK
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    """Close the connection instead of responding."""
    hang: bool = False
    """Don't respond until the call is aborted."""


@dataclass(slots=True)
class Engine:
    """A local server that plays its replies in order, the last one again and again."""

    replies: list[Reply]
    served_context: int | None = 40
    calls: list[dict[str, object]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    called: asyncio.Event = field(default_factory=asyncio.Event)
    was_aborted: asyncio.Event = field(default_factory=asyncio.Event)

    async def generate(self, request: web.Request) -> web.StreamResponse:
        self.calls.append(await request.json())
        self.headers.append(dict(request.headers))
        self.called.set()
        reply = self.replies[min(len(self.calls), len(self.replies)) - 1]
        if reply.hang:
            await self.was_aborted.wait()
        if reply.cut:
            assert request.transport is not None
            request.transport.abort()
        return web.Response(
            status=reply.status,
            text=reply.body,
            headers=reply.headers,
            content_type="application/json",
        )

    async def abort(self, request: web.Request) -> web.Response:
        self.aborted.append((await request.json())["rid"])
        self.was_aborted.set()
        return web.Response()

    async def model_info(self, _: web.Request) -> web.Response:
        info = {"model_path": "/models/x", "served_model_name": "x", "weight_version": "v3"}
        return web.json_response(info)

    async def server_info(self, _: web.Request) -> web.Response:
        return web.json_response({"context_length": self.served_context, "more": [1]})

    def rids(self) -> list[object]:
        return [call["rid"] for call in self.calls]


@asynccontextmanager
async def client_of(
    engine: Engine,
    *,
    retries: int = 2,
    timeout_s: float = 20.0,
    key_env: str | None = None,
    first_backoff_s: float = 0.001,
) -> AsyncIterator[SglangEngine]:
    app = web.Application()
    app.router.add_post("/generate", engine.generate)
    app.router.add_post("/abort_request", engine.abort)
    app.router.add_get("/get_model_info", engine.model_info)
    app.router.add_get("/server_info", engine.server_info)
    async with serving(app) as url:
        policy = SglangPolicy(
            url=url, retries=retries, timeout_seconds=timeout_s, api_key_env=key_env
        )
        client = SglangEngine(policy, vocab_size=VOCAB_SIZE, first_backoff_s=first_backoff_s)
        yield client
        await client.aclose()


async def test_it_is_a_token_engine_and_reads_the_old_path_of_older_servers() -> None:
    async with client_of(Engine([Reply()])) as client:
        assert isinstance(client, TokenEngine)
        info = await client.info()
    assert (info.model, info.context_tokens, info.weight_version) == ("x", 40, "v3")


async def test_a_call_names_its_episode_and_clips_its_tokens_to_the_context() -> None:
    engine = Engine([Reply()])
    async with client_of(engine) as client:
        generation = await client.generate(REQUEST)
    assert generation.token_ids == (9,)
    params = engine.calls[0]["sampling_params"]
    assert isinstance(params, dict)
    assert params["max_new_tokens"] == 37
    assert engine.headers[0]["X-SMG-Routing-Key"] == "job/caf%C3%A9/0"
    assert len(str(engine.calls[0]["rid"])) == 32


async def test_without_a_known_context_the_requests_own_bound_holds() -> None:
    engine = Engine([Reply()], served_context=None)
    async with client_of(engine) as client:
        await client.generate(REQUEST)
    params = engine.calls[0]["sampling_params"]
    assert isinstance(params, dict)
    assert params["max_new_tokens"] == 50


async def test_a_full_context_is_refused_here() -> None:
    engine = Engine([Reply()], served_context=3)
    async with client_of(engine) as client:
        with pytest.raises(ContextOverflowError):
            await client.generate(REQUEST)
    assert engine.calls == []


@pytest.mark.parametrize("ids", [[], [-1], [VOCAB_SIZE]])
async def test_ids_that_would_kill_the_server_are_never_sent(ids: list[int]) -> None:
    engine = Engine([Reply()])
    request = GenerateRequest(REQUEST.episode, 0, InputIds.of(ids), 5, Sampling(), ())
    async with client_of(engine) as client:
        with pytest.raises(InternalError):
            await client.generate(request)
    assert engine.calls == []


@pytest.mark.parametrize("status", [429, 503])
async def test_a_rejection_for_load_is_retried_with_a_new_rid(status: int) -> None:
    engine = Engine([Reply(status, "{}", {"Retry-After": "0"}), Reply()])
    async with client_of(engine) as client:
        assert (await client.generate(REQUEST)).token_ids == (9,)
    assert len(set(engine.rids())) == 2
    # It never ran, so there is nothing to abort.
    assert engine.aborted == []


async def test_retry_after_and_the_episodes_clock_are_heeded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine, clock, paused = (
        Engine([Reply(503, "{}", {"Retry-After": "5"}), Reply()]),
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
    engine = Engine([reply, Reply()])
    async with client_of(engine) as client:
        assert (await client.generate(REQUEST)).token_ids == (9,)
    first, second = engine.rids()
    assert engine.aborted == [first]
    assert first != second


async def test_a_dropped_call_is_aborted_and_left_to_the_pool() -> None:
    engine = Engine([Reply(cut=True)])
    async with client_of(engine) as client:
        with pytest.raises(EngineLostError) as caught:
            await client.generate(REQUEST)
    assert caught.value.loss is CallLoss.DROPPED
    assert engine.aborted == engine.rids()


async def test_a_call_that_times_out_is_aborted_and_not_retried() -> None:
    engine = Engine([Reply(hang=True)])
    async with client_of(engine, timeout_s=1) as client:
        with pytest.raises(EngineLostError, match="no response within"):
            await client.generate(REQUEST)
    assert engine.aborted == engine.rids()
    assert len(engine.calls) == 1


async def test_a_cancelled_call_is_aborted() -> None:
    engine = Engine([Reply(hang=True)])
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
    engine = Engine([reply])
    async with client_of(engine) as client:
        with pytest.raises(kind):
            await client.generate(REQUEST)
    assert len(engine.calls) == 1


async def test_the_key_is_sent_and_shown_nowhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ENGINE_KEY", "a-secret-key")
    engine = Engine([Reply(503, "{}"), Reply(401, '{"error": "Unauthorized"}')])
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
