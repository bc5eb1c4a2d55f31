"""Engines for tests of the pool: servers in this process, or in one of their own to be killed.

Run as a program, it serves `Echo` until it is killed: `engine_parts.py PORT SECONDS`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import aiohttp
from aiohttp import web

from swe_rollout.engine.base import EngineInfo, GenerateRequest, TokenEngine
from swe_rollout.engine.pool.affinity import Affinity
from swe_rollout.engine.pool.pool import EnginePool
from swe_rollout.engine.pool.probe import ReplicaState
from swe_rollout.engine.pool.replica import PoolTiming
from swe_rollout.engine.scripted.server import ServerOptions, make_app, serve
from swe_rollout.spec.policy import Sampling, SglangPolicy
from swe_rollout.tokens.log import InputIds
from swe_rollout.tokens.replay import ReplayRequest
from swe_rollout.types.deadline import Deadline
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.turn import FinishReason, Generation, WeightSpan

VOCAB_SIZE = 1000
QUICK = PoolTiming(
    probe_interval_s=0.05, down_probe_interval_s=0.02, probe_timeout_s=10.0, first_backoff_s=0.01
)


@dataclass
class Echo(TokenEngine):
    """Samples the length of its prompt, twice, after `seconds`."""

    seconds: float = 0.0
    requests: list[GenerateRequest] = field(default_factory=list)
    called: asyncio.Event = field(default_factory=asyncio.Event)

    async def info(self) -> EngineInfo:
        return EngineInfo("echo", None, None, "v1")

    async def generate(self, request: GenerateRequest) -> Generation:
        self.requests.append(request)
        self.called.set()
        await asyncio.sleep(self.seconds)
        token_id = len(request.input_ids) % VOCAB_SIZE
        return Generation(
            token_ids=(token_id, token_id),
            logprobs=(-0.5, -0.25),
            finish_reason=FinishReason.LENGTH,
            prompt_tokens=len(request.input_ids),
            weight_versions=(WeightSpan("v1", 0, 2),),
        )

    async def aclose(self) -> None:
        pass


def request(
    *ids: int,
    sample: int = 0,
    instance: str = "task",
    turn: int = 0,
    clock: Deadline | None = None,
    replay: ReplayRequest | None = None,
) -> GenerateRequest:
    return GenerateRequest(
        episode=EpisodeId("job", instance, sample),
        turn=turn,
        input_ids=InputIds.of(ids or (1, 2, 3)),
        max_new_tokens=50,
        sampling=Sampling(),
        stop_token_ids=(9,),
        replay=replay,
        clock=clock,
    )


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
    *workers: str, timing: PoolTiming = QUICK, **policy: object
) -> AsyncIterator[EnginePool]:
    """Make a pool of these servers that notices changes quickly."""
    fields = {"workers": workers, "outage_seconds": 60.0, **policy}
    pool = EnginePool(
        SglangPolicy.model_validate(fields),
        vocab_size=VOCAB_SIZE,
        timing=timing,
        first_backoff_s=0.001,
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
