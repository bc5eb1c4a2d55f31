"""Lanes between a trainer and its engine: tokens so far, bounds, and calls that are held."""

from __future__ import annotations

import asyncio

import pytest

from swe_rollout.engine.base import EngineInfo, GenerateRequest, TokenEngine
from swe_rollout.errors import EngineError
from swe_rollout.integrations.parking import Episodes, Lane, ParkingEngine
from swe_rollout.spec.policy import Sampling
from swe_rollout.tokens.log import InputIds
from swe_rollout.types.deadline import Deadline
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.turn import FinishReason, Generation, WeightSpan

EPISODE = EpisodeId("job", "task", 1)


class Fixed(TokenEngine):
    """Samples the same two tokens, as one that is stopped in between."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.released: list[EpisodeId] = []
        self.reason = FinishReason.ABORT

    async def info(self) -> EngineInfo:
        return EngineInfo("fixed", None, None, None)

    async def generate(self, request: GenerateRequest) -> Generation:
        self.asked.append(request.max_new_tokens)
        ids = (7, 8)[: request.max_new_tokens]
        spans = (WeightSpan("v", 0, len(ids)),)
        return Generation(ids, (-1.0,) * len(ids), self.reason, 1, weight_versions=spans)

    def release(self, episode: EpisodeId) -> None:
        self.released.append(episode)

    async def aclose(self) -> None: ...


def request(*ids: int, branch: int = 0, clock: Deadline | None = None) -> GenerateRequest:
    ready = InputIds.of(ids)
    return GenerateRequest(EPISODE, 0, ready, 9, Sampling(), (), branch=branch, clock=clock)


def engine_of(*, stopped: bool = False) -> tuple[ParkingEngine, Fixed]:
    fixed = Fixed()
    return ParkingEngine(fixed, stopped=lambda: stopped), fixed


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
    assert tokens.logprobs == [-1.0, -1.0, 0.0, -1.0, -1.0]
    assert tokens.versions == ["v"]
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
    assert fixed.asked == [5, 1, 5]


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
    assert not fixed.asked
    lane.resume()
    await asyncio.sleep(0)
    # Aborted as the trainer stops: what it holds is known, and the loop gets it later.
    assert lane.is_parked
    assert lane.tokens.response_ids == [7, 8]
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
