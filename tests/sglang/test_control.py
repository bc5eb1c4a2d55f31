"""Control of a real server: a full queue, a pause, weight updates, version labels."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from sglang.calls import (
    LONG_CALL,
    REQUEST,
    VOCAB_SIZE,
    abort,
    of,
    until,
    until_busy,
    until_runs_or_ended,
    write_record,
)
from sglang.served import MODEL, UPDATE, Breakable, teach
from swe_rollout.engine.errors import UnavailableError
from swe_rollout.engine.pool.pool import EnginePool
from swe_rollout.engine.pool.probe import ReplicaState
from swe_rollout.engine.sglang.control import EngineControl, PauseMode, WeightUpdate
from swe_rollout.engine.sglang.engine import SglangEngine
from swe_rollout.spec.policy import Sampling, SglangPolicy
from swe_rollout.types.deadline import Deadline
from swe_rollout.types.turn import FinishReason
from waits import stands

pytestmark = [pytest.mark.sglang, pytest.mark.slow]

TOLERANCE = 1e-4
LONG_ENOUGH = 800
"""Tokens of a call that a control request surely meets half way."""
MAX_EARLY_ENDS = 8


@pytest.fixture(scope="module")
def server(breakable: Callable[..., Breakable]) -> Breakable:
    """Start a server that runs one call, queues one, and has no room for a third."""
    return breakable("--max-running-requests=1", "--max-queued-requests=1")


def state(pool: EnginePool) -> ReplicaState:
    (replica,) = pool.replicas.values()
    return replica.state


@pytest.fixture
async def pool(server: Breakable) -> AsyncIterator[EnginePool]:
    pool = EnginePool(SglangPolicy(workers=(server.url,)), vocab_size=VOCAB_SIZE)
    yield pool
    await pool.aclose()


@pytest.fixture
async def control(server: Breakable) -> AsyncIterator[EngineControl]:
    """Control it; paused and running calls end with the test."""
    async with EngineControl(server.url) as control:
        yield control
        await control.resume()
        await abort(server.url)
        await until_busy(server.url, 0)


@pytest.mark.usefixtures("control")
async def test_a_full_queue_is_a_typed_error_and_a_patient_call_gets_in(
    server: Breakable, pool: EnginePool
) -> None:
    running = [asyncio.create_task(pool.generate(of(LONG_CALL, 0)))]
    await until_busy(server.url, 1)
    running.append(asyncio.create_task(pool.generate(of(LONG_CALL, 1))))
    await until_busy(server.url, 2)

    hasty = SglangEngine(SglangPolicy(url=server.url, retries=0), vocab_size=VOCAB_SIZE)
    with pytest.raises(UnavailableError, match="queue is full"):
        await hasty.generate(REQUEST)
    await hasty.aclose()

    patient = asyncio.create_task(pool.generate(of(REQUEST, 2)))
    await abort(server.url)
    generations = await asyncio.gather(*running)
    assert {generation.finish_reason for generation in generations} == {FinishReason.ABORT}
    assert (await patient).token_ids


async def test_a_paused_engine_holds_a_call_and_stops_its_clock(
    pool: EnginePool, control: EngineControl
) -> None:
    await control.pause(PauseMode.RETRACT)
    clock = Deadline(30.0)
    call = asyncio.create_task(pool.generate(replace(REQUEST, clock=clock)))
    await until(lambda: state(pool) is ReplicaState.PAUSED and stands(clock))
    left_s = clock.remaining_s
    await asyncio.sleep(1.0)
    assert not call.done()
    assert clock.remaining_s == left_s

    await control.resume()
    assert (await call).finish_reason is FinishReason.LENGTH
    await until(lambda: state(pool) is ReplicaState.READY)


async def test_a_new_label_marks_the_tokens_from_there_on(
    server: Breakable, pool: EnginePool
) -> None:
    call = asyncio.create_task(pool.generate(replace(LONG_CALL, max_new_tokens=LONG_ENOUGH)))
    await until_busy(server.url, 1)
    label = {"new_version": "relabelled", "abort_all_requests": False}
    async with httpx.AsyncClient(base_url=server.url, trust_env=False) as http:
        (await http.post("/update_weight_version", json=label)).raise_for_status()
    spans = (await call).weight_versions
    assert [span.version for span in spans] == ["default", "relabelled"]
    assert (spans[0].start, spans[0].end, spans[1].end) == (0, spans[1].start, LONG_ENOUGH)


@pytest.mark.parametrize("mode", [PauseMode.RETRACT, PauseMode.IN_PLACE])
async def test_only_updates_that_process_the_prompt_again_give_logprobs_of_one_checkpoint(
    server: Breakable, pool: EnginePool, control: EngineControl, mode: PauseMode, tmp_path: Path
) -> None:
    long = replace(LONG_CALL, max_new_tokens=LONG_ENOUGH, sampling=Sampling(temperature=0.8))
    # Where the model may sample anything, it may also end its turn before the update.
    for attempt in range(MAX_EARLY_ENDS):
        request = of(long, attempt)
        await control.update_weights(WeightUpdate(str(MODEL), "old"))
        call = asyncio.create_task(pool.generate(request))
        await until_runs_or_ended(server.url, call)
        await control.update_weights(WeightUpdate(str(UPDATE), "new", mode))
        generation = await call
        if len(generation.weight_versions) > 1:
            break

    record = write_record(request, generation, tmp_path / "record.json")
    compared = teach([record], {"old": MODEL, "new": UPDATE}, temperature=0.8)
    (crossing,) = compared["crossings"]
    assert crossing["cut"] <= crossing["last"]
    assert compared["versions"]["old"]["max_difference"] <= TOLERANCE
    # In place, the new weights continue on the cache that the old ones computed.
    is_of_one_checkpoint = compared["versions"]["new"]["max_difference"] <= TOLERANCE
    assert is_of_one_checkpoint is (mode is PauseMode.RETRACT)
