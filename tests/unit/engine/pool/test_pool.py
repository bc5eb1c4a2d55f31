"""The pool against servers in this process: where episodes call, and what they survive."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from swe_rollout.engine.base import TokenEngine
from swe_rollout.engine.errors import EngineLostError, UnavailableError
from swe_rollout.engine.pool.admission import Waiting
from swe_rollout.engine.pool.pool import CacheShare, EnginePool
from swe_rollout.engine.pool.probe import ReplicaState
from swe_rollout.engine.scripted.server import ServerOptions, make_app
from swe_rollout.errors import InternalError, UnreachableError
from swe_rollout.spec.policy import SglangPolicy
from swe_rollout.types.deadline import Deadline
from unit.engine.engine_parts import (
    QUICK,
    Echo,
    landing_at,
    pool_of,
    post,
    request,
    served,
    serving,
    states,
)
from waits import PATIENCE_S, spared_s, until


async def until_states(pool: EnginePool, *wanted: ReplicaState) -> None:
    await until(lambda: states(pool) == list(wanted))


async def test_it_is_a_token_engine() -> None:
    async with served(Echo()) as url, pool_of(url, url) as pool:
        assert isinstance(pool, TokenEngine)
        assert (await pool.info()).model == "echo"
        assert (await pool.generate(request())).token_ids == (3, 3)


async def test_no_server_is_unreachable_and_one_of_two_is_enough() -> None:
    async with pool_of("http://127.0.0.1:1", "http://127.0.0.1:2") as pool:
        with pytest.raises(UnreachableError, match="no engine responds at"):
            await pool.info()
    async with served(Echo()) as url, pool_of("http://127.0.0.1:1", url) as pool:
        assert (await pool.info()).model == "echo"


async def test_ids_that_do_not_continue_the_last_response_are_never_sent() -> None:
    engine = Echo()
    async with served(engine) as url, pool_of(url) as pool:
        await pool.generate(request(1, 2, 3))
        with pytest.raises(InternalError, match="nothing was sent"):
            await pool.generate(request(1, 2, 3, 3, 4, turn=1))
        assert len(engine.requests) == 1
        await pool.generate(request(1, 2, 3, 3, 3, 5, turn=1))
        pool.release(request().episode)
        await pool.generate(request(7, 7))
        assert len(engine.requests) == 3


async def test_an_episode_stays_at_its_server_and_many_are_spread() -> None:
    engines = [Echo(), Echo(), Echo()]
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(served(engine)) for engine in engines]
        pool = await stack.enter_async_context(pool_of(*urls))
        for turn in range(3):
            ids = (1, 2, 3, *(number for length in (3, 5)[:turn] for number in (length, length)))
            calls = [request(*ids, instance=f"task-{n}", turn=turn) for n in range(30)]
            await asyncio.gather(*map(pool.generate, calls))
    for engine in engines:
        episodes = Counter(call.episode for call in engine.requests)
        assert set(episodes.values()) == {3}
        assert 5 <= len(episodes) <= 13


async def test_an_episode_of_a_dead_server_continues_at_another_with_the_same_ids() -> None:
    dying, other = Echo(seconds=30), Echo()
    clock = Deadline(100)
    async with AsyncExitStack() as stack:
        dead_end = await stack.enter_async_context(AsyncExitStack())
        first = await dead_end.enter_async_context(served(dying))
        second = await stack.enter_async_context(served(other))
        pool = await stack.enter_async_context(pool_of(first, second))
        task = landing_at(first, second)
        call = asyncio.create_task(pool.generate(request(1, 2, 3, instance=task, clock=clock)))
        await dying.called.wait()
        await asyncio.sleep(0.3)
        await dead_end.aclose()
        assert (await call).token_ids == (3, 3)
        assert states(pool) == [ReplicaState.DOWN, ReplicaState.READY]
        await pool.generate(request(1, 2, 3, 3, 3, instance=task, turn=1))
    assert [call.input_ids.text.tobytes() for call in other.requests] == [b"1,2,3", b"1,2,3,3,3"]
    assert spared_s(clock, 100) > 0.29, "time that was lost is charged to the episode"


async def test_a_server_that_stops_responding_loses_its_calls_to_another() -> None:
    frozen, other = Echo(seconds=30), Echo()
    responds = asyncio.Event()
    responds.set()

    @web.middleware
    async def freeze(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path != "/generate":
            await responds.wait()
        return await handler(request)

    app = make_app(frozen)
    app.middlewares.append(freeze)

    timing = replace(QUICK, probe_timeout_s=1.0)
    async with (
        serving(app) as first,
        served(other) as second,
        pool_of(first, second, timing=timing) as pool,
    ):
        task = landing_at(first, second)
        call = asyncio.create_task(pool.generate(request(instance=task)))
        await frozen.called.wait()
        responds.clear()
        assert (await asyncio.wait_for(call, PATIENCE_S)).token_ids == (3, 3)
        assert len(other.requests) == 1
        responds.set()
        await until_states(pool, ReplicaState.READY, ReplicaState.READY)


async def test_when_all_are_down_a_call_waits_with_its_clock_stopped_until_one_is_back() -> None:
    clock = Deadline(100)
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(served(Echo()))
        pool = await stack.enter_async_context(pool_of(url))
        await pool.generate(request())
    port = int(url.rsplit(":", 1)[1])
    async with pool_of(url) as pool:
        call = asyncio.create_task(pool.generate(request(clock=clock)))
        await until_states(pool, ReplicaState.DOWN)
        await asyncio.sleep(0.3)
        assert not call.done()
        async with served(Echo(), port=port):
            assert (await call).token_ids == (3, 3)
            assert states(pool) == [ReplicaState.READY]
    assert spared_s(clock, 100) > 0.29


async def test_an_outage_that_lasts_too_long_is_an_engine_that_is_lost() -> None:
    async with pool_of("http://127.0.0.1:1", outage_seconds=0.5) as pool:
        with pytest.raises(EngineLostError, match=r"waited 0\.5 s") as caught:
            await pool.generate(request())
    assert caught.value.retryable
    assert "outageSeconds" in caught.value.fix


async def test_a_call_that_kills_every_engine_ends() -> None:
    killed = 0

    async def die(http: web.Request) -> web.Response:
        nonlocal killed
        killed += 1
        assert http.transport is not None
        http.transport.abort()
        return web.Response()

    async def alive(_: web.Request) -> web.Response:
        return web.json_response({"model_path": "m"})

    app = web.Application()
    app.router.add_post("/generate", die)
    app.router.add_post("/abort_request", alive)
    app.router.add_get("/ready", alive)
    app.router.add_get("/model_info", alive)
    async with serving(app) as url, pool_of(url) as pool:
        with pytest.raises(EngineLostError, match="one call was lost 5 times"):
            await pool.generate(request())
    assert killed == 5


async def test_concurrency_bounds_the_calls_at_a_server() -> None:
    engine = Echo(seconds=0.05)
    async with (
        served(engine, ServerOptions(max_running=2)) as url,
        pool_of(url, concurrency=2) as pool,
    ):
        calls = [request(sample=sample) for sample in range(8)]
        await asyncio.gather(*map(pool.generate, calls))
    assert len(engine.requests) == 8


async def test_a_full_queue_is_retried_and_then_an_error() -> None:
    engine = Echo(seconds=0.1)
    async with served(engine, ServerOptions(max_running=1)) as url, pool_of(url, retries=9) as pool:
        calls = [request(sample=sample) for sample in range(3)]
        await asyncio.gather(*map(pool.generate, calls))
    async with served(Echo(), ServerOptions(max_running=0)) as url, pool_of(url, retries=1) as pool:
        with pytest.raises(UnavailableError, match="no more work"):
            await pool.generate(request())


async def test_a_paused_engine_holds_calls_and_stops_their_clocks() -> None:
    engine, clock = Echo(), Deadline(100)
    async with served(engine) as url, pool_of(url, timeout_seconds=1.5) as pool:
        await pool.generate(request())
        assert await post(url, "/pause_generation", {"mode": "in_place"}) == 200
        call = asyncio.create_task(pool.generate(request(1, 2, 3, 3, 3, turn=1, clock=clock)))
        await until_states(pool, ReplicaState.PAUSED)
        # Longer than the call's own timeout, whose clock is stopped too.
        await asyncio.sleep(1.5)
        left = clock.remaining_s
        await asyncio.sleep(0.2)
        assert clock.remaining_s == left
        assert spared_s(clock, 100) > 1.69
        assert not call.done()
        assert pool.paused_s > 0.2
        await post(url, "/continue_generation", {})
        assert (await call).token_ids == (5, 5)
        await until_states(pool, ReplicaState.READY)
        assert pool.paused_s == 0
        assert len(engine.requests) == 2


async def test_new_episodes_avoid_a_paused_engine_and_running_ones_wait_for_it() -> None:
    async with AsyncExitStack() as stack:
        first, second = Echo(), Echo()
        urls = [await stack.enter_async_context(served(engine)) for engine in (first, second)]
        pool = await stack.enter_async_context(pool_of(*urls))
        calls = [request(instance=f"task-{number}") for number in range(8)]
        await asyncio.gather(*map(pool.generate, calls))
        held = [call.episode for call in first.requests]
        assert held
        await post(urls[0], "/pause_generation", {"mode": "retract"})
        await until_states(pool, ReplicaState.PAUSED, ReplicaState.READY)
        assert pool.paused_s == 0  # one of them samples
        await asyncio.gather(*(pool.generate(request(instance=f"new-{n}")) for n in range(4)))
        assert len(first.requests) == len(held)
        more = request(1, 2, 3, 3, 3, instance=held[0].instance, turn=1)
        waiting = asyncio.create_task(pool.generate(more))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await post(urls[0], "/continue_generation", {})
        await waiting
        assert first.requests[-1].episode == held[0]


async def test_lines_of_the_monitors_name_no_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    """They start with the first call of an episode, and serve all others."""
    pool = EnginePool(SglangPolicy(url="http://engine.invalid"), vocab_size=10)
    seen: list[dict[str, object]] = []

    async def monitor(_replica: object) -> None:
        seen.append(structlog.contextvars.get_contextvars())

    monkeypatch.setattr(pool, "_monitor", monitor)
    with structlog.contextvars.bound_contextvars(episode="demo/a/0"):
        pool._start_monitors()
        await asyncio.sleep(0)
        assert structlog.contextvars.get_contextvars() == {"episode": "demo/a/0"}
    await pool.aclose()
    assert seen == [{}]


async def test_an_episode_enters_when_the_cache_has_room_and_its_clock_stands_until_then() -> None:
    changes: list[Waiting] = []
    share = CacheShare(workers=2, context_tokens=10, on_change=changes.append)
    clock, first, second = Deadline(100), request(), request(sample=1)
    async with (
        served(Echo(), ServerOptions(cache_tokens=20)) as url,
        pool_of(url, share=share) as pool,
    ):
        before = pool.capacity
        await pool.info()
        assert (before, pool.capacity) == (None, 1)
        await pool.enter(first.episode)
        await pool.generate(first)
        entering = asyncio.create_task(pool.enter(second.episode))
        await until(lambda: pool.waiting.starting)
        # A call without a place waits too, before those that start.
        call = asyncio.create_task(pool.generate(request(sample=2, clock=clock)))
        await until(lambda: pool.waiting.turns)
        left = clock.remaining_s
        await asyncio.sleep(0.1)
        assert clock.remaining_s == left
        pool.release(first.episode)
        assert (await call).token_ids == (3, 3)
        pool.release(request(sample=2).episode)
        await entering
    assert [(each.starting, each.turns) for each in changes] == [(1, 0), (1, 1), (1, 0), (0, 0)]
    assert {each.cache_tokens for each in changes} == {10}


async def test_a_place_at_a_server_that_dies_is_looked_for_at_another() -> None:
    share = CacheShare(context_tokens=10)
    async with AsyncExitStack() as stack:
        dying = await stack.enter_async_context(AsyncExitStack())
        options = ServerOptions(cache_tokens=5)
        url = await dying.enter_async_context(served(Echo(), options))
        pool = await stack.enter_async_context(pool_of(url, share=share))
        await pool.info()
        await pool.enter(request().episode)
        await pool.generate(request())
        entering = asyncio.create_task(pool.enter(request(sample=1).episode))
        await until(lambda: pool.waiting.starting)
        await dying.aclose()
        # Nobody has a place any more; with no server left, the first call waits for one.
        await asyncio.wait_for(entering, PATIENCE_S)
        assert pool.waiting == Waiting(0, 0, 0, 5)


@pytest.mark.parametrize(
    ("reported", "named", "share"),
    [(1000, None, 250), (1000, 600, 150), (1000, 0, None), (None, 600, 150), (None, None, None)],
)
def test_workers_divide_the_cache_that_is_reported_or_named(
    reported: int | None, named: int | None, share: int | None
) -> None:
    assert CacheShare(workers=4).of(reported, named) == share
