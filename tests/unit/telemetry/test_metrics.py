"""Metrics: the catalog is what is served, conventions of names, few series whatever is named."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from swe_rollout.errors import Boundary, StoreError
from swe_rollout.events import CacheAwaited, Execution, Phase, SandboxStart, Service, Span, TurnId
from swe_rollout.telemetry.catalog import LABEL_VALUES, METRICS, Kind
from swe_rollout.telemetry.metrics import OTHER, BoundedLabel, RolloutMetrics
from swe_rollout.types.episode import EpisodeId, Failure
from swe_rollout.types.turn import CallStatus, ToolCall
from swe_rollout.types.verdict import Reward, RewardTerm, VerdictStatus
from unit.export.export_parts import failed, trajectory
from unit.telemetry.telemetry_parts import EPISODE, engine_call


def value(metrics: RolloutMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"swe_rollout_{name}", labels)


def series(registry: CollectorRegistry) -> int:
    return sum(len(family.samples) for family in registry.collect())


def test_what_the_catalog_says_is_what_is_served() -> None:
    metrics = RolloutMetrics()
    served = {
        family.name: (family.type, family.documentation)
        for family in metrics.registry.collect()
        if family.name.startswith("swe_rollout_")
    }
    assert served == {
        each.name.removesuffix("_total"): (each.kind.value, each.help) for each in METRICS
    }


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_follow_the_conventions(metric: object) -> None:
    (found,) = [each for each in METRICS if each is metric]
    assert re.fullmatch(r"swe_rollout_[a-z_]+", found.name)
    assert found.name.endswith("_total") is (found.kind is Kind.COUNTER)
    assert bool(found.buckets) is (found.kind is Kind.HISTOGRAM)
    assert list(found.buckets) == sorted(set(found.buckets))
    assert not {"job", "instance", "episode", "sample", "le"} & set(found.labels)
    assert found.help.endswith((".", "…"))


def test_an_episode_is_counted_from_its_plan_to_its_commit() -> None:
    metrics = RolloutMetrics()
    metrics.planned(5, 2)
    assert (value(metrics, "episodes_planned"), value(metrics, "episodes_queued")) == (5, 3)
    metrics.attempt_began(EPISODE, 1)
    for phase in (Phase.START, Phase.AGENT, Phase.GRADE):
        metrics.phase(EPISODE, phase)
        assert value(metrics, "episodes_running", phase=phase.value) == 1
        assert value(metrics, "episodes_queued") == 2
    metrics.attempt_ended(EPISODE, trajectory())
    metrics.phase(EPISODE, Phase.COMMIT)
    metrics.done(trajectory())
    for phase in Phase:
        assert value(metrics, "episodes_running", phase=phase.value) == 0
        assert value(metrics, "phase_seconds_count", phase=phase.value) == 1
    assert value(metrics, "episodes_queued") == 2
    assert value(metrics, "episodes_finished_total", outcome="resolved") == 1
    assert value(metrics, "attempts_total") == 1


def test_outcomes_and_rewards_of_either_sign() -> None:
    metrics, found = RolloutMetrics(), trajectory()
    assert found.verdict is not None
    metrics.done(found)
    metrics.done(failed(found))
    metrics.done(replace(found, verdict=None, reward=None))
    for status, reward in ((VerdictStatus.UNRESOLVED, -0.5), (VerdictStatus.TAMPERED, 0.25)):
        verdict = replace(found.verdict, status=status)
        metrics.done(replace(found, verdict=verdict, reward=Reward((RewardTerm("own", reward),))))
    for outcome in ("resolved", "masked", "ungraded", "unresolved", "tampered"):
        assert value(metrics, "episodes_finished_total", outcome=outcome) == 1
    assert value(metrics, "reward_points_total", sign="positive") == 1.25
    assert value(metrics, "reward_points_total", sign="negative") == 0.5
    assert value(metrics, "reward_count") == 3
    assert value(metrics, "reward_bucket", le="0.0") == 1
    # A sum that may fall is no counter.
    assert value(metrics, "reward_sum") is None


def test_turns_calls_and_tools() -> None:
    metrics = RolloutMetrics()
    for turn in trajectory().turns:
        metrics.turn(EPISODE, turn)
    assert value(metrics, "turns_total") == 3
    assert value(metrics, "tool_calls_total", status="ok") == 2
    assert value(metrics, "tool_calls_total", status="invalid_json") == 1
    assert value(metrics, "tool_seconds_sum", tool="bash") == 0.5
    assert value(metrics, "tool_seconds_count", tool="") is None


def test_calls_of_the_engine_and_waits() -> None:
    metrics = RolloutMetrics()
    metrics.engine_called(engine_call(TurnId(EPISODE, 0), seconds=3.0, waited_s=2.0))
    metrics.engine_called(engine_call(TurnId(EPISODE, 1), error="EngineLostError", waited_s=1.0))
    assert value(metrics, "engine_call_seconds_sum") == 1.0
    assert value(metrics, "engine_call_seconds_count") == 1
    assert value(metrics, "engine_call_errors_total", type="EngineLostError") == 1
    assert value(metrics, "wait_seconds_total", service="engine") == 3.0
    assert value(metrics, "prompt_tokens_total") == 40
    assert value(metrics, "prefix_cache_hit_tokens_total") == 30
    assert value(metrics, "sampled_tokens_total") == 5
    assert value(metrics, "cache_awaited", what="turn") == 0
    metrics(CacheAwaited(starting=3, turns=2, held_tokens=10, cache_tokens=12))
    assert value(metrics, "cache_awaited", what="start") == 3
    assert value(metrics, "cache_awaited", what="turn") == 2
    metrics.waited(Service.STORE, 4.0)
    metrics.store_failed(StoreError("down"))
    assert value(metrics, "wait_seconds_total", service="store") == 4.0
    assert value(metrics, "store_errors_total", type="StoreError") == 1


def test_sandboxes_and_commands() -> None:
    metrics = RolloutMetrics()
    for warm in (True, False, False):
        metrics.sandbox_started(SandboxStart(EPISODE, "agent", Span(0, 2.0), is_warm=warm))
    metrics.sandbox_started(SandboxStart(EPISODE, "agent", Span(0, 9.0, "UnschedulableError")))
    metrics.executed(Execution(EPISODE, "grader", Span(0, 0.5), exit_code=1))
    start = "sandbox_start_seconds_count"
    assert value(metrics, start, role="agent", start="warm") == 1
    assert value(metrics, start, role="agent", start="cold") == 2
    assert value(metrics, "sandbox_start_errors_total", type="UnschedulableError") == 1
    assert value(metrics, "exec_seconds_sum", role="grader") == 0.5


def test_failures_have_an_owner() -> None:
    metrics = RolloutMetrics()
    metrics.attempt_began(EPISODE, 1)
    metrics.attempt_ended(EPISODE, failed(trajectory()))
    metrics.attempt_ended(EPISODE, None)
    failures = "attempts_failed_total"
    assert value(metrics, failures, owner="sandbox", type="SandboxError") == 1


def names(count: int) -> list[str]:
    """Names of tools, tasks and jobs, every other one of which is no plain name."""
    hostile = 'x"} 1\n# é'
    return [f"{hostile}{each}" if each % 2 else f"t{each}" for each in range(count)]


def test_hostile_names_do_not_grow_the_series() -> None:
    """Jobs, tasks and samples are in no label; tools and errors are bounded."""
    metrics = RolloutMetrics()
    turn, broken = trajectory().turns[0], failed(trajectory())

    def act(count: int) -> int:
        for number, name in enumerate(names(count)):
            episode = EpisodeId(name.replace("/", ""), name, number)
            metrics.attempt_began(episode, number)
            metrics.phase(episode, Phase.AGENT)
            call = ToolCall(CallStatus.OK, "raw", name)
            metrics.turn(episode, replace(turn, tool_calls=(call,) * 2))
            unknown = replace(call, status=CallStatus.UNKNOWN_TOOL)
            metrics.turn(episode, replace(turn, tool_calls=(unknown,) * 2))
            failure = Failure(Boundary.EXTENSION, name, "", retryable=False)
            metrics.attempt_ended(episode, replace(broken, episode=episode, failure=failure))
            metrics.engine_called(engine_call(TurnId(episode, number), error=name))
        return series(metrics.registry)

    bound = act(4 * LABEL_VALUES)
    assert act(40 * LABEL_VALUES) == bound
    assert bound < 2000
    text = generate_latest(metrics.registry).decode()
    assert "# é" not in text
    assert len(re.findall(r"^swe_rollout_tool_seconds_count", text, re.MULTILINE)) <= (
        LABEL_VALUES + 1
    )


@given(st.lists(st.text()))
def test_a_bounded_label_is_plain_and_one_of_few(values: list[str]) -> None:
    label = BoundedLabel(limit=3)
    told = [label(each) for each in values]
    assert len(set(told)) <= 4
    assert all(each in {value, OTHER} for each, value in zip(told, values, strict=True))
    assert all(re.fullmatch(r"[\w.:-]{1,64}", each, re.ASCII) for each in told)
    assert told == [label(each) for each in values]
