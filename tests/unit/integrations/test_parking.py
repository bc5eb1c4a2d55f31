"""Lanes between a trainer and its engine: tokens so far, bounds, and calls that are held."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from swe_rollout.engine.base import GenerateRequest
from swe_rollout.errors import EngineError
from swe_rollout.integrations.parking import Episodes, Lane, ParkingEngine
from swe_rollout.types.deadline import Deadline
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.turn import FinishReason
from unit.engine import engine_parts
from unit.engine.engine_parts import Echo
from waits import until

EPISODE = EpisodeId("job", "task", 1)


def request(*ids: int, **changes: Any) -> GenerateRequest:
    return engine_parts.request(*ids, sample=1, max_new_tokens=9, **changes)


def engine_of(*, stopped: bool = False) -> tuple[ParkingEngine, Echo]:
    """Samples the same two tokens, as one that is stopped in between."""
    own = Echo(ids=(7, 8), reason=FinishReason.ABORT)
    return ParkingEngine(own, stopped=lambda: stopped), own


async def test_a_lane_knows_the_main_branch_and_forgets_an_attempt_that_ended() -> None:
    engine, fixed = engine_of()
    lane = Lane(None)
    engine.open_lane(EPISODE, lane)
    await engine.generate(request(1, 2))
    await engine.generate(request(1, 2, 7, 8, 3))
    await engine.generate(request(5, branch=1))
    tokens = lane.tokens
    assert (tokens.prompt_ids, tokens.response_ids) == ([1, 2], [7, 8, 3, 7, 8])
    assert tokens.loss_mask == [1, 1, 0, 1, 1]
    assert tokens.logprobs == [-0.5, -0.25, 0.0, -0.5, -0.25]
    assert tokens.versions == ["v1"]
    engine.release(EPISODE)
    assert fixed.released == [EPISODE]
    assert lane.tokens.prompt_ids == []


async def test_a_response_is_bounded_by_branch() -> None:
    engine, fixed = engine_of()
    engine.open_lane(EPISODE, Lane(5))
    await engine.generate(request(1, 2))
    await engine.generate(request(*range(6)))
    full = await engine.generate(request(*range(7)))
    assert (full.token_ids, full.finish_reason) == ((), FinishReason.LENGTH)
    await engine.generate(request(*range(7), branch=1))
    assert [each.max_new_tokens for each in fixed.requests] == [5, 1, 5]


async def test_a_call_is_held_with_its_clock_stopped_until_the_lane_goes_on() -> None:
    engine, fixed = engine_of(stopped=True)
    lane, clock = Lane(None), Deadline(60)
    engine.open_lane(EPISODE, lane)
    call = asyncio.create_task(engine.generate(request(1, clock=clock)))
    await asyncio.sleep(0)
    assert lane.is_parked
    before = clock.remaining_s
    await asyncio.sleep(0.05)
    assert clock.remaining_s == before
    assert not fixed.requests
    lane.resume()
    # Aborted as the trainer stops: what it holds is known, and the loop gets it later.
    await until(lambda: lane.tokens.response_ids == [7, 8])
    assert lane.is_parked
    lane.resume()
    assert (await call).token_ids == (7, 8)


async def test_an_abort_that_is_no_stop_goes_on_at_once() -> None:
    engine, _ = engine_of()
    engine.open_lane(EPISODE, Lane(None))
    assert (await engine.generate(request(1))).finish_reason is FinishReason.ABORT


async def test_an_episode_that_nobody_started_is_refused() -> None:
    engine, _ = engine_of()
    with pytest.raises(EngineError, match="was not started"):
        await engine.generate(request(1))


async def test_the_oldest_makes_room_and_all_end_at_the_close() -> None:
    engine, _ = engine_of()
    episodes = Episodes(engine, park_s=60, most=2)

    async def play() -> Trajectory:
        await asyncio.Event().wait()
        raise AssertionError

    running = [
        episodes.start(EpisodeId("job", "task", number), play(), response_tokens=None)
        for number in range(3)
    ]
    await asyncio.sleep(0)
    for number, each in enumerate(running):
        episodes.park(str(number), each)
    await asyncio.sleep(0)
    assert len(episodes) == 2
    assert running[0].task.cancelled()
    assert episodes.take("0") is None
    assert episodes.take("1") is running[1]
    episodes.end(running[1])
    await episodes.aclose()
    assert all(each.task.cancelled() for each in running)
    with pytest.raises(EngineError, match="was not started"):
        await engine.generate(request(1))
