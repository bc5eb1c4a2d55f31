"""A day in the life of a trainer's engine, in minutes: many episodes, and everything that happens.

64 episodes of 20 turns, 16 at a time, through the real loop, renderer and pool. While they run,
calls are aborted, weights are updated in the middle of turns, and the server is killed and comes
back with the weights it was started with. Afterwards every token of every record is held against
what went over the wire and against a teacher-forced recomputation by the checkpoint it names.

Weights are updated by the modes that read the prompt again (`retract`, `abort`): with `in_place`
the tokens after the cut come of two checkpoints at once, and `test_weights` measures that.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from e2e.records import check
from sglang.episodes import BASE, Crew, write
from sglang.served import MODEL, UPDATE, Breakable, teach
from sglang.wire_tap import Call, WireTap
from swe_rollout.agent.renderer import Renderer
from swe_rollout.engine.base import Sampling
from swe_rollout.engine.control import EngineControl, PauseMode, WeightUpdate
from swe_rollout.engine.pool import EnginePool
from swe_rollout.limits import CutTurns, Limits
from swe_rollout.spec.job import SglangPolicy
from swe_rollout.trajectory import Trajectory, from_json

pytestmark = pytest.mark.sglang

EPISODES, SAMPLES, TURNS, CONCURRENCY = 64, 4, 20, 16
TEMPERATURES = (1.0, 0.7)
"""Of every other task."""
LIMITS = Limits(
    turns=TURNS,
    context_tokens=8000,
    max_new_tokens=48,
    cut_turns=CutTurns.ANSWER,
    format_errors=TURNS + 1,
)
WEIGHTS = {"default": MODEL, "second": UPDATE, "third": UPDATE, "fourth": MODEL}
"""By version; `default` is what the server starts with, each time."""
TOLERANCE = 1e-4
MODEL_NOISE = 1e-4


@dataclass(frozen=True)
class Soak:
    """What it left behind."""

    records: dict[float, list[Path]]
    """Files, by temperature."""
    calls: list[Call]
    turns: int

    @property
    def paths(self) -> list[Path]:
        """All of them."""
        return [path for paths in self.records.values() for path in paths]


@pytest.fixture(scope="module")
def soak(
    breakable: Callable[..., Breakable], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Soak]:
    """The run, once for all that is checked of it."""
    server = breakable(f"--max-running-requests={CONCURRENCY}")
    yield asyncio.run(_run(server, tmp_path_factory.mktemp("records")))


async def _run(server: Breakable, folder: Path) -> Soak:
    renderer = Renderer.load(str(MODEL))
    pool = EnginePool(SglangPolicy(workers=(server.url,)), vocab_size=renderer.vocab_size)
    crew = Crew(pool, renderer, LIMITS)
    slots = asyncio.Semaphore(CONCURRENCY)
    records: dict[float, list[Path]] = defaultdict(list)

    async def one(number: int) -> None:
        task, sample = divmod(number, SAMPLES)
        temperature = TEMPERATURES[task % len(TEMPERATURES)]
        async with slots:
            record = await crew.episode(task, sample, sampling=Sampling(temperature=temperature))
        records[temperature].append(write(record, folder))

    with WireTap().listening() as tap:
        async with asyncio.TaskGroup() as group:
            trouble = group.create_task(_trouble(server, pool, crew, tap))
            for number in range(EPISODES):
                group.create_task(one(number))
        assert trouble.done()
    await pool.aclose()
    return Soak(dict(records), tap.calls, crew.turns.count)


async def _trouble(server: Breakable, pool: EnginePool, crew: Crew, tap: WireTap) -> None:
    """Everything that happens to an engine, each when so many turns are over."""
    await crew.turns.reached(100)
    await _abort_some(server, tap)
    await crew.turns.reached(300)
    await pool.update_weights(WeightUpdate(str(UPDATE), "second", PauseMode.RETRACT))
    await crew.turns.reached(550)
    assert tap.running
    await server.kill()
    await server.again()
    await crew.turns.reached(800)
    await pool.update_weights(WeightUpdate(str(UPDATE), "third", PauseMode.ABORT))
    await crew.turns.reached(1000)
    await pool.update_weights(WeightUpdate(str(MODEL), "fourth", PauseMode.RETRACT))
    await _abort_some(server, tap)


async def _abort_some(server: Breakable, tap: WireTap) -> None:
    async with EngineControl(server.url) as control:
        for call in tap.running[-8:]:
            await control.abort(call.rid)
