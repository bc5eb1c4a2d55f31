"""Engines for tests of the pool: servers in this process, or in one of their own to be killed.

Run as a program, it serves `Echo` until it is killed: `engine_parts.py PORT SECONDS`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import aiohttp
from aiohttp import web

from swe_rollout.engine.base import EngineInfo, GenerateRequest, TokenEngine
from swe_rollout.engine.pool.affinity import Affinity
from swe_rollout.engine.pool.pool import CacheShare, EnginePool
from swe_rollout.engine.pool.probe import ReplicaState
from swe_rollout.engine.pool.replica import PoolTiming
from swe_rollout.engine.scripted.server import ServerOptions, make_app, serve
from swe_rollout.spec.policy import Sampling, SglangPolicy
from swe_rollout.tokens.log import InputIds
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.turn import FinishReason, Generation, WeightSpan

VOCAB_SIZE = 1000
QUICK = PoolTiming(
    probe_interval_s=0.05, down_probe_interval_s=0.02, probe_timeout_s=10.0, first_backoff_s=0.01
)


@dataclass
class Echo(TokenEngine):
    """Samples the length of its prompt, twice, or `ids`, after `seconds` and once it may go on."""

    seconds: float = 0.0
    ids: tuple[int, ...] = ()
    reason: FinishReason = FinishReason.LENGTH
    error: Exception | None = None
    requests: list[GenerateRequest] = field(default_factory=list)
    released: list[EpisodeId] = field(default_factory=list)
    called: asyncio.Event = field(default_factory=asyncio.Event)
    may_go: asyncio.Event = field(default_factory=asyncio.Event)
    """Clear it to hold the calls."""

    def __post_init__(self) -> None:
        self.may_go.set()

    async def info(self) -> EngineInfo:
        return EngineInfo("echo", None, None, "v1")

    async def generate(self, request: GenerateRequest) -> Generation:
        self.requests.append(request)
        self.called.set()
        await asyncio.sleep(self.seconds)
        await self.may_go.wait()
        if self.error is not None:
            raise self.error
        ids = self.ids or (len(request.input_ids) % VOCAB_SIZE,) * 2
        ids = ids[: request.max_new_tokens]
        return Generation(
            token_ids=ids,
            logprobs=(-0.5, -0.25)[: len(ids)],
            finish_reason=self.reason,
            prompt_tokens=len(request.input_ids),
            weight_versions=(WeightSpan("v1", 0, len(ids)),) if ids else (),
        )

    def release(self, episode: EpisodeId) -> None:
        self.released.append(episode)

    async def aclose(self) -> None:
        self.may_go.set()


@dataclass(frozen=True, slots=True)
class Reply:
    """One response to `/generate`."""

    status: int = 200
    body: str = "{}"
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    """Close the connection instead of responding."""
    hang: bool = False
    """Don't respond until the call is aborted."""


@dataclass(slots=True)
class PreparedServer:
    """A local server that plays its replies in order, the last one again and again."""

    replies: list[Reply]
    served_context: int | None = 40
    info: Reply = Reply(body='{"model_path": "x", "weight_version": "v3"}')
    calls: list[dict[str, object]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    aborted: list[object] = field(default_factory=list)
    asked: int = 0
    """How often it was asked about its model."""
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
        return _sent(reply)

    async def abort(self, request: web.Request) -> web.Response:
        self.aborted.append((await request.json())["rid"])
        self.was_aborted.set()
        return web.Response()

    async def model_info(self, _: web.Request) -> web.Response:
        self.asked += 1
        return _sent(self.info)

    async def server_info(self, _: web.Request) -> web.Response:
        return web.json_response({"context_length": self.served_context, "more": [1]})

    async def health(self, _: web.Request) -> web.Response:
        return web.Response()

    def rids(self) -> list[object]:
        return [call["rid"] for call in self.calls]

    def app(self, *, info_path: str = "/model_info") -> web.Application:
        app = web.Application()
        app.router.add_post("/generate", self.generate)
        app.router.add_post("/abort_request", self.abort)
        app.router.add_get(info_path, self.model_info)
        app.router.add_get("/server_info", self.server_info)
        app.router.add_get("/health", self.health)
        return app


def _sent(reply: Reply) -> web.Response:
    return web.Response(
        status=reply.status,
        text=reply.body,
        headers=reply.headers,
        content_type="application/json",
    )


def request(*ids: int, sample: int = 0, instance: str = "task", **changes: Any) -> GenerateRequest:
    """Return a call of an episode; 50 tokens may follow the ids, by default 1, 2, 3."""
    episode, ready = EpisodeId("job", instance, sample), InputIds.of(ids or (1, 2, 3))
    return replace(GenerateRequest(episode, 0, ready, 50, Sampling(), (9,)), **changes)


@asynccontextmanager
async def serving(app: web.Application, *, port: int = 0) -> AsyncIterator[str]:
    """Serve the application; it is gone, with its connections, at the end of the block."""
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


@asynccontextmanager
async def served(
    engine: TokenEngine, setup: ServerOptions | None = None, *, port: int = 0
) -> AsyncIterator[str]:
    """Serve the engine over HTTP."""
    async with serving(make_app(engine, setup), port=port) as url:
        yield url


@asynccontextmanager
async def pool_of(
    *workers: str, timing: PoolTiming = QUICK, share: CacheShare | None = None, **policy: object
) -> AsyncIterator[EnginePool]:
    """Make a pool of these servers that notices changes quickly."""
    fields = {"workers": workers, "outage_seconds": 60.0, **policy}
    pool = EnginePool(
        SglangPolicy.model_validate(fields),
        vocab_size=VOCAB_SIZE,
        timing=timing,
        first_backoff_s=0.001,
        share=share,
    )
    yield pool
    await pool.aclose()


def states(pool: EnginePool) -> list[ReplicaState]:
    return [replica.state for replica in pool.replicas.values()]


def landing_at(url: str, *others: str) -> str:
    """Return an instance whose first call lands at `url` while all these servers are idle."""
    candidates = dict.fromkeys((url, *others), 0)
    names = (f"task-{number}" for number in range(1000))
    return next(
        name for name in names if Affinity().assign(EpisodeId("job", name, 0), candidates) == url
    )


async def post(url: str, path: str, body: object) -> int:
    """Send what a trainer in another process would send; returns the status."""
    async with aiohttp.ClientSession() as http, http.post(url + path, json=body) as response:
        return response.status


async def _main(port: int, seconds: float) -> None:
    show = partial(print, flush=True)
    await serve(Echo(seconds), host="127.0.0.1", port=port, on_ready=show)


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1]), float(sys.argv[2])))
