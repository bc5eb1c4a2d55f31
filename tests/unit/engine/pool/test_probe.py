"""A router in front of servers: it forwards neither aborts, pauses nor contexts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import pytest
from aiohttp import web

from swe_rollout.engine.base import EngineInfo
from swe_rollout.engine.pool.probe import HealthProbe, ReplicaState
from swe_rollout.errors import UnreachableError
from swe_rollout.types.deadline import Deadline
from swe_rollout.types.turn import FinishReason
from unit.engine.engine_parts import Echo, pool_of, post, request, served, serving, states
from waits import spared_s, until


@dataclass
class Router:
    """Forwards calls to its first worker; when that is gone, responds as a recorded router did."""

    workers: list[str]
    keys: list[str] = field(default_factory=list)

    async def generate(self, http: web.Request) -> web.Response:
        self.keys.append(http.headers["X-SMG-Routing-Key"])
        url = self.workers[0] + "/generate"
        try:
            async with (
                aiohttp.ClientSession(headers={"X-SMG-Routing-Key": self.keys[-1]}) as session,
                session.post(url, data=await http.read()) as response,
            ):
                body = await response.read()
                return web.Response(
                    body=body, status=response.status, content_type="application/json"
                )
        except aiohttp.ClientError:
            error = {"code": "call_upstream_request_error", "message": "error sending request"}
            return web.json_response({"error": error}, status=500)

    async def list_workers(self, _: web.Request) -> web.Response:
        return web.json_response({"workers": [{"url": f"{url}/"} for url in self.workers]})

    async def model_info(self, _: web.Request) -> web.Response:
        return web.json_response({"model_path": "echo"})

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/generate", self.generate)
        app.router.add_get("/workers", self.list_workers)
        app.router.add_get("/get_model_info", self.model_info)
        return app


class Bounded(Echo):
    async def info(self) -> EngineInfo:
        return EngineInfo("echo", 50, None, "v1")


@asynccontextmanager
async def routed(engine: Echo) -> AsyncIterator[tuple[Router, str]]:
    async with served(engine) as worker:
        router = Router([worker])
        async with serving(router.app()) as url:
            yield router, url


async def test_the_router_gets_the_episode_and_its_servers_are_asked_for_the_context() -> None:
    engine = Bounded()
    async with routed(engine) as (router, url), pool_of(url=url) as pool:
        assert (await pool.info()).context_tokens == 50
        await pool.generate(request())
    assert router.keys == ["job/task/0"]
    assert engine.requests[0].max_new_tokens == 47


@pytest.mark.parametrize("named", [True, False])
async def test_a_cancelled_call_is_aborted_at_the_server_itself(*, named: bool) -> None:
    engine = Echo(seconds=30)
    async with routed(engine) as (router, url):
        workers = router.workers if named else []
        async with pool_of(*workers, url=url) as pool:
            await pool.info()
            call = asyncio.create_task(pool.generate(request()))
            await engine.called.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert await falls_idle(router.workers[0])


async def falls_idle(worker: str) -> bool:
    """Whether the server has no calls in the end."""
    async with aiohttp.ClientSession() as http:
        for _ in range(6000):
            async with http.get(f"{worker}/v1/loads") as response:
                if not (await response.json())["loads"][0]["num_running_reqs"]:
                    return True
            await asyncio.sleep(0.01)
    return False


async def test_a_pause_of_a_server_behind_it_stops_the_clocks_of_its_calls() -> None:
    clock = Deadline(100)
    async with routed(Echo()) as (router, url), pool_of(url=url) as pool:
        await pool.info()
        await post(router.workers[0], "/pause_generation", {"mode": "retract"})
        call = asyncio.create_task(pool.generate(request(clock=clock)))
        await until(lambda: states(pool) == [ReplicaState.PAUSED])
        await asyncio.sleep(0.3)
        await post(router.workers[0], "/continue_generation", {})
        assert (await call).finish_reason is FinishReason.LENGTH
    assert spared_s(clock, 100) > 0.29


async def test_a_call_whose_server_dies_behind_it_waits_for_another() -> None:
    clock = Deadline(100)
    async with served(Echo()) as good:
        router = Router(["http://127.0.0.1:1"])
        async with serving(router.app()) as url, pool_of(url=url) as pool:
            call = asyncio.create_task(pool.generate(request(clock=clock)))
            await until(lambda: len(router.keys) > 1)
            await asyncio.sleep(0.3)
            assert not call.done()
            router.workers = [good]
            assert (await call).token_ids == (3, 3)
    assert spared_s(clock, 100) > 0.29


@pytest.mark.threat(point=26)
@pytest.mark.parametrize(
    "named", ["http://169.254.169.254", "http://me:word@sglang", "https://kubernetes.default.svc"]
)
async def test_a_router_can_not_make_the_worker_call_what_is_no_engine(named: str) -> None:
    router = Router(["http://sglang:30000", named])
    async with serving(router.app()) as url:
        probe = HealthProbe(url, api_key_env=None, timeout_s=5)
        assert await probe.list_workers() == ()
        await probe.aclose()


@pytest.mark.threat(point=16)
@pytest.mark.parametrize(
    "loads",
    [
        [{"num_running_reqs": 10**400}],
        [{"num_running_reqs": -5}],
        [{"num_waiting_reqs": 1.5}],
        [{}] * 2000,
        "[" * 100_000,
    ],
)
async def test_impossible_loads_are_no_loads(loads: object) -> None:
    body = loads if isinstance(loads, str) else json.dumps({"loads": loads})

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=body)

    app = web.Application()
    app.router.add_get("/v1/loads", answer)
    async with serving(app) as url:
        probe = HealthProbe(url, api_key_env=None, timeout_s=5)
        assert await probe.count_calls() is None
        await probe.aclose()


@pytest.mark.threat(point=26)
async def test_a_stranger_at_the_address_is_described_by_status_and_type_alone() -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"kind": "Status", "message": "secrets is forbidden"}, status=403)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    async with serving(app) as url, pool_of(url) as pool:
        with pytest.raises(UnreachableError) as caught:
            await pool.info()
    assert caught.value.why == "HTTP 403: application/json"
