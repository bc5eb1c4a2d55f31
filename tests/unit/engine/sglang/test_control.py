"""Weight updates while calls run: pause, load, resume, on every server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import web

from swe_rollout.engine.pool.probe import ReplicaState
from swe_rollout.engine.scripted.server import make_app
from swe_rollout.engine.sglang.control import (
    EngineControl,
    EngineControlError,
    PauseMode,
    WeightUpdate,
    WeightUpdateResult,
    update_weights_on,
)
from swe_rollout.types.deadline import Deadline
from swe_rollout.types.turn import FinishReason, WeightSpan
from unit.engine.engine_parts import Echo, pool_of, request, served, serving, states
from waits import PATIENCE_S, spared_s, until


@pytest.fixture
def update(tmp_path: Path) -> WeightUpdate:
    return WeightUpdate(str(tmp_path), "v2", PauseMode.ABORT)


async def update_at(update: WeightUpdate, *urls: str) -> tuple[WeightUpdateResult, ...]:
    engines = [EngineControl(url) for url in urls]
    try:
        return await update_weights_on(engines, update)
    finally:
        for engine in engines:
            await engine.__aexit__()


@pytest.mark.parametrize("mode", PauseMode)
async def test_a_server_loads_the_weights_in_every_mode(tmp_path: Path, mode: PauseMode) -> None:
    async with served(Echo()) as url, EngineControl(url) as engine, pool_of(url) as pool:
        await engine.update_weights(WeightUpdate(str(tmp_path), "v2", mode))
        generation = await pool.generate(request())
    assert generation.weight_versions == (WeightSpan("v2", 0, 2),)


async def test_a_running_call_returns_and_the_next_one_has_the_new_weights(
    update: WeightUpdate,
) -> None:
    engine, clock = Echo(seconds=30), Deadline(100)
    async with served(engine) as url, EngineControl(url) as control, pool_of(url) as pool:
        call = asyncio.create_task(pool.generate(request(clock=clock)))
        await engine.called.wait()
        engine.seconds = 0
        await control.update_weights(update)
        assert (await call).finish_reason is FinishReason.ABORT
        generation = await pool.generate(request(clock=clock))
        assert generation.weight_versions == (WeightSpan("v2", 0, 2),)


async def test_a_frozen_call_continues_and_its_clock_was_stopped() -> None:
    engine, clock = Echo(), Deadline(100)
    async with served(engine) as url, pool_of(url) as pool, EngineControl(url) as control:
        await pool.generate(request())
        engine.may_go.clear()
        call = asyncio.create_task(pool.generate(request(sample=1, clock=clock)))
        await until(lambda: len(engine.requests) == 2)
        await control.pause(PauseMode.IN_PLACE)
        await until(lambda: states(pool) == [ReplicaState.PAUSED])
        engine.may_go.set()
        await asyncio.sleep(0.3)
        assert not call.done()
        await control.resume()
        assert (await call).token_ids == (3, 3)
    assert spared_s(clock, 100) > 0.29


async def test_a_server_that_does_not_load_the_weights_samples_on_with_its_own(
    tmp_path: Path,
) -> None:
    async with served(Echo()) as first, serving(make_app(Echo())) as second:
        results = await update_at(WeightUpdate(str(tmp_path / "none"), "v3"), first, second)
        assert [result.url for result in results] == [first, second]
        assert all("Failed to get weights" in str(result.error) for result in results)
        async with pool_of(first) as pool:
            assert (await pool.generate(request())).token_ids == (3, 3)


async def test_one_server_that_is_down_keeps_no_other_from_its_weights(
    update: WeightUpdate,
) -> None:
    down = "http://127.0.0.1:1"
    async with served(Echo()) as url, pool_of(url) as pool:
        failed, updated = await update_at(update, down, url)
        assert down in str(failed.error)
        assert updated == WeightUpdateResult(url)
        generation = await pool.generate(request())
    assert generation.weight_versions == (WeightSpan("v2", 0, 2),)


@pytest.mark.parametrize("ticks", [0, 5, 10, 15, 20, 30])
async def test_an_update_that_is_cancelled_anywhere_leaves_no_server_paused(
    update: WeightUpdate, ticks: int
) -> None:
    async with served(Echo()) as url, EngineControl(url) as control, pool_of(url) as pool:
        updating = asyncio.create_task(control.update_weights(update))
        for _ in range(ticks):
            await asyncio.sleep(0)
        updating.cancel()
        await asyncio.wait((updating,))
        async with asyncio.timeout(PATIENCE_S):
            assert (await pool.generate(request())).token_ids == (3, 3)


async def test_a_server_that_can_not_even_be_resumed_reports_both_errors(
    update: WeightUpdate,
) -> None:
    async with EngineControl("http://127.0.0.1:1") as control:
        with pytest.raises(EngineControlError, match="may still be paused") as caught:
            await control.update_weights(update)
    assert "/pause_generation" in caught.value.why
    assert "/continue_generation" in caught.value.why


async def test_a_request_that_a_router_does_not_know_names_the_fix() -> None:
    async with serving(web.Application()) as url, EngineControl(url) as control:
        with pytest.raises(EngineControlError, match="HTTP 404") as caught:
            await control.pause()
    assert "name the servers themselves" in caught.value.fix
