"""An engine that dies during episodes: they wait, their clocks stop, and they continue."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from e2e.records import check
from sglang.episodes import EpisodeRunner, write
from sglang.served import MODEL, Breakable
from sglang.wire_tap import WireTap
from swe_rollout.agent.renderer import Renderer
from swe_rollout.engine.pool.pool import EnginePool
from swe_rollout.spec.limits import CutTurns, Limits
from swe_rollout.spec.policy import Sampling, SglangPolicy
from swe_rollout.types.episode import StopReason

pytestmark = [pytest.mark.sglang, pytest.mark.slow]

EPISODES, TURNS = 8, 10
EPISODE_S = 30.0
LIMITS = Limits(
    turns=TURNS,
    context_tokens=8000,
    max_new_tokens=48,
    cut_turns=CutTurns.ANSWER,
    format_errors=TURNS + 1,
    episode_seconds=EPISODE_S,
)


async def test_episodes_survive_an_outage_longer_than_their_own_time_limit(
    breakable: Callable[..., Breakable], tmp_path: Path
) -> None:
    server = breakable()
    renderer = Renderer.load(str(MODEL))
    pool = EnginePool(SglangPolicy(workers=(server.url,)), vocab_size=renderer.vocab_size)
    runner = EpisodeRunner(pool, renderer, LIMITS)
    sampling = Sampling(temperature=0.5)
    with WireTap().listening() as tap:
        episodes = [
            asyncio.create_task(runner.episode(task, sampling=sampling)) for task in range(EPISODES)
        ]
        await asyncio.wait_for(runner.turns.reached(EPISODES), 120)
        await server.kill()
        died = time.monotonic()
        started = list(tap.calls)
        await asyncio.sleep(EPISODE_S)
        await server.restart()
        down_s = time.monotonic() - died
        records = await asyncio.wait_for(asyncio.gather(*episodes), 300)
    await pool.aclose()

    lost = [call for call in started if call.lost]
    assert lost
    for call in lost:
        calls = [other for other in tap.calls if other.episode == call.episode]
        attempts = [other.ids for other in calls[calls.index(call) :]]
        assert attempts[1] == call.ids
    for record in records:
        check(json.loads(write(record, tmp_path).read_bytes()))
        assert record.failure is None
        assert record.stop_reason in {StopReason.TURN_LIMIT, StopReason.FINISHED}
    waited = [record for record in records if record.timing.total_s > EPISODE_S]
    assert waited
    assert all(record.timing.total_s > down_s for record in waited)
    for calls in tap.by_episode().values():
        for call, following in pairwise(calls):
            assert following.ids[: len(call.ids)] == call.ids
