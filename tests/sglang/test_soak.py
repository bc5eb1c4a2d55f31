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
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from e2e.records import check
from sglang.episodes import Crew, write
from sglang.served import MODEL, UPDATE, Breakable, teach
from sglang.wire_tap import Call, WireTap
from swe_rollout.agent.renderer import Renderer
from swe_rollout.engine.base import Sampling
from swe_rollout.engine.control import EngineControl, PauseMode, WeightUpdate
from swe_rollout.engine.pool import EnginePool
from swe_rollout.limits import CutTurns, Limits
from swe_rollout.spec.job import SglangPolicy
from swe_rollout.trajectory import from_json

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
MOST = 0.9


@dataclass(frozen=True)
class Soak:
    """What it left behind."""

    records: dict[float, list[Path]]
    """Files, by temperature."""
    calls: list[Call]
    turns: int

    def by_episode(self) -> dict[str, list[Call]]:
        """The calls of each, in order."""
        calls: dict[str, list[Call]] = defaultdict(list)
        for call in self.calls:
            calls[call.episode].append(call)
        return calls

    @property
    def paths(self) -> list[Path]:
        """All of them."""
        return [path for paths in self.records.values() for path in paths]


@pytest.fixture(scope="module")
def soak(breakable: Callable[..., Breakable], tmp_path_factory: pytest.TempPathFactory) -> Soak:
    """The run, once for all that is checked of it."""
    server = breakable(f"--max-running-requests={CONCURRENCY}")
    return asyncio.run(_run(server, tmp_path_factory.mktemp("records")))


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


def test_every_episode_went_all_its_turns_and_its_record_is_valid(soak: Soak) -> None:
    assert len(soak.paths) == EPISODES
    for record in _read(soak):
        check(record)
        assert record["failure"] is None
        assert (record["stop_reason"], len(record["turns"])) == ("turn_limit", TURNS)
        for turn in record["turns"]:
            spans = turn["weight_versions"]
            assert sum(span["end"] - span["start"] for span in spans) == turn["completion_tokens"]


def test_every_id_is_what_went_over_the_wire(soak: Soak) -> None:
    calls = soak.by_episode()
    for record in _read(soak):
        ids, sampled = record["token_ids"], [0] * len(record["token_ids"])
        for call in calls[record["episode"]]:
            start, end = len(call.ids), len(call.ids) + len(call.sampled)
            assert call.ids == ids[:start]
            assert call.sampled == ids[start:end]
            assert call.logprobs == record["logprobs"][start:end]
            sampled[start:end] = [1] * (end - start)
        assert sampled == record["loss_mask"]


def test_what_was_lost_with_the_server_was_asked_again_with_the_same_ids(soak: Soak) -> None:
    again = 0
    for calls in soak.by_episode().values():
        for call, following in pairwise(calls):
            if call.answer is None:
                assert following.ids == call.ids
                assert following.rid != call.rid
                again += 1
    assert again


def test_a_turn_that_was_aborted_goes_on_with_the_rest_of_its_budget(soak: Soak) -> None:
    aborted = [
        (call, following)
        for calls in soak.by_episode().values()
        for call, following in pairwise(calls)
        if call.is_aborted and call.sampled
    ]
    assert aborted
    for call, following in aborted:
        assert following.ids == [*call.ids, *call.sampled]
        assert following.budget == call.budget - len(call.sampled)


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_every_logprob_is_that_of_the_checkpoint_its_version_names(
    soak: Soak, temperature: float
) -> None:
    taught = teach(soak.records[temperature], WEIGHTS, temperature=temperature)

    assert taught["max_difference"] <= TOLERANCE
    assert set(taught["versions"]) == set(WEIGHTS)
    # The other checkpoint gives nearly every token another logprob, so the version is no guess.
    for version in taught["versions"].values():
        assert version["decided"] > MOST * version["tokens"]


def test_weights_change_inside_turns_at_the_token_that_the_record_says(soak: Soak) -> None:
    crossings = [
        crossing
        for temperature, paths in soak.records.items()
        for crossing in teach(paths, WEIGHTS, temperature=temperature)["crossings"]
    ]
    assert crossings
    for crossing in crossings:
        assert crossing["first"] <= crossing["cut"] <= crossing["last"], crossing


def _read(soak: Soak) -> Iterator[dict[str, Any]]:
    for path in soak.paths:
        from_json(path.read_bytes())
        yield json.loads(path.read_bytes())
