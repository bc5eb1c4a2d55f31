"""Many episodes on one real engine that is aborted, updated, killed and restarted meanwhile.

64 episodes of 20 turns, 16 at a time, through the real loop, renderer and pool. While they run,
calls are aborted, weights are updated in the middle of turns, and the server is killed and
restarted with its original weights. Afterwards every token of every record is compared with the
recorded HTTP calls and with a teacher-forced recomputation by the checkpoint it names.

Weights are updated in the modes that process the prompt again (`retract`, `abort`): with `in_place`
the tokens after the cut depend on two checkpoints at once, which no recomputation can repeat.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest

from e2e.records import check
from sglang.calls import abort
from sglang.episodes import EpisodeRunner, write
from sglang.served import MODEL, UPDATE, Breakable, teach
from sglang.wire_tap import WireTap
from swe_rollout.agent.renderer import Renderer
from swe_rollout.engine.pool.pool import EnginePool
from swe_rollout.engine.sglang.control import EngineControl, PauseMode, WeightUpdate
from swe_rollout.spec.limits import CutTurns, Limits
from swe_rollout.spec.policy import Sampling, SglangPolicy
from swe_rollout.types.episode import StopReason
from swe_rollout.types.trajectory_json import from_json

pytestmark = pytest.mark.sglang

EPISODES, TURNS, CONCURRENCY = 64, 20, 16
TEMPERATURES = (0.8, 0.5)
"""Alternating by task."""
LIMITS = Limits(
    turns=TURNS,
    context_tokens=8000,
    max_new_tokens=48,
    cut_turns=CutTurns.ANSWER,
    format_errors=TURNS + 1,
)
WEIGHTS = {"default": MODEL, "second": UPDATE, "third": UPDATE, "fourth": MODEL}
"""By version; the server always starts with `default`."""
TOLERANCE = 1e-4
DECIDED = 0.2
"""Least share of a version's tokens; at low temperatures more are certain to both checkpoints."""
LONGEST_S = 1200.0


@dataclass(frozen=True)
class Soak:
    """The results of the run."""

    records: dict[float, list[Path]]
    """Record files, by temperature."""
    tap: WireTap

    @property
    def paths(self) -> list[Path]:
        return [path for paths in self.records.values() for path in paths]


@pytest.fixture(scope="module")
def soak(breakable: Callable[..., Breakable], tmp_path_factory: pytest.TempPathFactory) -> Soak:
    """Run it once for all tests."""
    server = breakable(f"--max-running-requests={CONCURRENCY}")
    return asyncio.run(_run(server, tmp_path_factory.mktemp("records")))


@pytest.fixture(scope="module")
def taught(soak: Soak) -> dict[float, dict[str, Any]]:
    """Compare all records with a teacher-forced recomputation, by temperature."""
    return {
        temperature: teach(paths, WEIGHTS, temperature=temperature)
        for temperature, paths in soak.records.items()
    }


async def _run(server: Breakable, folder: Path) -> Soak:
    renderer = Renderer.load(str(MODEL))
    pool = EnginePool(SglangPolicy(workers=(server.url,)), vocab_size=renderer.vocab_size)
    runner = EpisodeRunner(pool, renderer, LIMITS)
    slots = asyncio.Semaphore(CONCURRENCY)
    records: dict[float, list[Path]] = defaultdict(list)

    async def one(task: int) -> None:
        temperature = TEMPERATURES[task % len(TEMPERATURES)]
        async with slots:
            # The tiny model ends some episodes itself: others replace them, and all are checked.
            for sample in count():
                record = await runner.episode(
                    task, sample, sampling=Sampling(temperature=temperature)
                )
                records[temperature].append(write(record, folder))
                if record.stop_reason is not StopReason.FINISHED:
                    return

    with WireTap().listening() as tap:
        async with asyncio.timeout(LONGEST_S), asyncio.TaskGroup() as group:
            group.create_task(_disrupt(server, runner, tap))
            for task in range(EPISODES):
                group.create_task(one(task))
    await pool.aclose()
    return Soak(dict(records), tap)


async def _disrupt(server: Breakable, runner: EpisodeRunner, tap: WireTap) -> None:
    """Abort calls, update weights and kill the server, each after a number of turns."""
    await runner.turns.reached(100)
    await _abort_some(server, tap)
    await runner.turns.reached(300)
    await _update_weights(server, WeightUpdate(str(UPDATE), "second", PauseMode.RETRACT))
    await runner.turns.reached(550)
    assert tap.running
    await server.kill()
    await server.restart()
    await runner.turns.reached(800)
    await _update_weights(server, WeightUpdate(str(UPDATE), "third", PauseMode.ABORT))
    await runner.turns.reached(1000)
    await _update_weights(server, WeightUpdate(str(MODEL), "fourth", PauseMode.RETRACT))
    await _abort_some(server, tap)


async def _abort_some(server: Breakable, tap: WireTap) -> None:
    for call in tap.running[-8:]:
        await abort(server.url, call.rid)


async def _update_weights(server: Breakable, update: WeightUpdate) -> None:
    async with EngineControl(server.url) as control:
        await control.update_weights(update)


def test_the_episodes_played_all_turns_and_every_record_is_valid(soak: Soak) -> None:
    stops: Counter[str] = Counter()
    for record in _read(soak):
        check(record)
        assert record["failure"] is None
        stops[record["stop_reason"]] += 1
        assert record["stop_reason"] == "finished" or len(record["turns"]) == TURNS
        for turn in record["turns"]:
            spans = turn["weight_versions"]
            assert sum(span["end"] - span["start"] for span in spans) == turn["completion_tokens"]
    assert stops["turn_limit"] == EPISODES
    assert set(stops) <= {"turn_limit", "finished"}


def test_every_id_equals_the_recorded_calls(soak: Soak) -> None:
    calls = soak.tap.by_episode()
    for record in _read(soak):
        ids, sampled = record["token_ids"], [0] * len(record["token_ids"])
        for call in calls[record["episode"]]:
            start, end = len(call.ids), len(call.ids) + len(call.sampled)
            assert call.ids == ids[:start]
            assert call.sampled == ids[start:end]
            assert call.logprobs == record["logprobs"][start:end]
            sampled[start:end] = [1] * (end - start)
        assert sampled == record["loss_mask"]


def test_calls_lost_with_the_server_were_repeated_with_the_same_ids(soak: Soak) -> None:
    repeated = 0
    for calls in soak.tap.by_episode().values():
        for call, following in pairwise(calls):
            if call.response is None:
                assert following.ids == call.ids
                assert following.rid != call.rid
                repeated += 1
    assert repeated


def test_an_aborted_turn_continues_with_the_rest_of_its_budget(soak: Soak) -> None:
    aborted = [
        (call, following)
        for calls in soak.tap.by_episode().values()
        for call, following in pairwise(calls)
        if call.is_aborted and call.sampled
    ]
    assert aborted
    for call, following in aborted:
        assert following.ids == [*call.ids, *call.sampled]
        assert following.budget == call.budget - len(call.sampled)


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_every_logprob_is_that_of_the_checkpoint_its_version_names(
    taught: dict[float, dict[str, Any]], temperature: float
) -> None:
    compared = taught[temperature]

    assert compared["max_difference"] <= TOLERANCE
    assert set(compared["versions"]) == set(WEIGHTS)
    # The other checkpoint gives these another logprob, so the version is verified.
    for version in compared["versions"].values():
        assert version["decided"] > DECIDED * version["tokens"]


def test_weights_change_inside_turns_at_the_recorded_token(
    taught: dict[float, dict[str, Any]],
) -> None:
    crossings = [crossing for compared in taught.values() for crossing in compared["crossings"]]
    assert crossings
    for crossing in crossings:
        assert crossing["first"] <= crossing["cut"] <= crossing["last"], crossing


def _read(soak: Soak) -> Iterator[dict[str, Any]]:
    for path in soak.paths:
        from_json(path.read_bytes())
        yield json.loads(path.read_bytes())
