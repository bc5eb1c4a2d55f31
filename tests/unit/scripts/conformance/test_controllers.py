"""What counts as a controller that stands still, turns in flight, and slopes that are no noise."""

from __future__ import annotations

import asyncio
import random
import time
from argparse import Namespace
from collections.abc import Callable
from unittest.mock import MagicMock, create_autospec

import pytest

from rollout_dev.conformance.attacks import trials
from rollout_dev.conformance.chaos import faults, killed_job
from rollout_dev.conformance.chaos.faults import KILLS, SCENARIOS, Scenario
from rollout_dev.conformance.chaos.ground import Ground
from rollout_dev.conformance.soak import slope
from rollout_dev.faults.relay import Fault
from waits import until

EPISODES = list(range(200))


def _compute(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


async def _seen(hold: Callable[[float], None], *, above_s: float) -> trials.Stalls:
    seen = trials.Stalls()
    watching = asyncio.create_task(seen.watch())
    await until(lambda: seen.longest_s > 0.0)
    hold(0.5)
    await until(lambda: seen.longest_s > above_s)
    watching.cancel()
    return seen


@pytest.mark.parametrize("hold", [_compute, time.sleep])
async def test_a_loop_that_computes_or_is_blocked_for_long_stands_still(
    monkeypatch: pytest.MonkeyPatch, hold: Callable[[float], None]
) -> None:
    monkeypatch.setattr(trials, "_BLOCKED_S", 0.3 if hold is time.sleep else 5.0)
    await _seen(hold, above_s=0.4)


async def test_waiting_for_a_core_is_no_standing_still() -> None:
    # As where others have the core: time goes by, and this process uses none of it.
    seen = await _seen(time.sleep, above_s=0.0)
    assert seen.longest_s < 0.4


@pytest.mark.parametrize(("harness", "of_a_sandbox"), [(False, 1), (True, 20)])
def test_what_was_in_flight_depends_on_what_was_killed(*, harness: bool, of_a_sandbox: int) -> None:
    given = Namespace(parallelism=8, workers=4, turns=20, harness=harness)

    assert killed_job._in_flight(dict.fromkeys(KILLS, 0), given) == 0
    assert {what: killed_job._in_flight({what: 1}, given) for what in KILLS} == {
        "worker": 2,
        "operator": 0,
        "engine": 8,
        "sandbox": of_a_sandbox,
        "API server": 8,
    }


def test_a_line_is_found_exactly_and_what_fills_in_the_beginning_is_no_growth() -> None:
    found = slope(EPISODES, [7 + 3 * each for each in EPISODES])
    assert found.value == pytest.approx(3)
    assert found.error == pytest.approx(0, abs=1e-9)
    assert found.is_above(2.9)
    assert not found.is_above(3.1)
    assert slope(EPISODES, [min(each, 50.0) for each in EPISODES]).value == 0


def test_growth_is_told_from_noise() -> None:
    for seed in range(20):
        chance = random.Random(seed)
        noise = [20 + chance.gauss(0, 2) for _ in EPISODES]
        assert slope(EPISODES, [at + each for at, each in enumerate(noise)]).is_above(0.1)
        assert not slope(EPISODES, noise).is_above(0.05)


def test_too_little_says_nothing() -> None:
    with pytest.raises(ValueError, match="too few"):
        slope(EPISODES[:20], EPISODES[:20])
    with pytest.raises(ValueError, match="no episode"):
        slope([5.0] * 100, [1.0] * 100)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.name)
def test_each_fault_breaks_something_and_a_relay_is_mended(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground, broken = create_autospec(Ground, instance=True), MagicMock()
    pods = [{"metadata": {"name": "p"}}]
    monkeypatch.setattr(faults, "PODS", dict.fromkeys(faults.PODS, lambda *_: pods))
    for name in ("kill_pod", "kill_component", "starve_pod", "kill_whole_pod", "_fill_disk"):
        monkeypatch.setattr(faults, name, broken)
    monkeypatch.setattr(faults, "stopped", broken)
    monkeypatch.setattr(faults, "time", broken.time)

    scenario.inflict(ground, "job")

    relayed = [*ground.relay.call_args_list, *ground.api.do.call_args_list]
    is_relay = scenario.does == "relay"
    assert [call.args[-1] for call in relayed] == [scenario.fault, Fault.NONE][: 2 * is_relay]
    calls = (broken, ground.delete_pod, ground.evict)
    assert sum(each.call_count for each in calls) == 1 - is_relay
