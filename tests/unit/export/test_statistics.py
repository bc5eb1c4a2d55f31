"""Statistics are counted from records, and bounded whatever a policy writes (J5, WE7)."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_rollout.export.statistics import NO_TOOL, Distribution, JobStatistics
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.turn import CallStatus, Observation, ToolCall
from swe_rollout.types.verdict import Reward, RewardTerm
from unit.export.export_parts import failed, trajectory


def counted(*trajectories: Trajectory) -> JobStatistics:
    found = JobStatistics()
    for each in trajectories:
        found.add(each)
    return found


def test_turns_calls_tokens_and_times_are_counted() -> None:
    found = counted(trajectory("a"), trajectory("b")).to_dict()
    assert (found["episodes"], found["resolved"], found["masked"]) == (2, 2, 0)
    per = found["per_episode"]
    assert isinstance(per, dict)
    assert per["turns"]["total"] == 6
    assert per["sampled_tokens"]["mean"] == 15
    assert per["tool_calls"]["max"] == 3
    assert per["engine_s"]["total"] == 6.0
    assert (found["prompt_tokens"], found["cached_tokens"]) == (2 * (20 + 27 + 34), 18)
    assert found["finish_reasons"] == {"stop": 6}
    json.dumps(found)


def test_calls_are_counted_by_tool_and_status() -> None:
    tools = counted(trajectory()).tools
    assert list(tools) == ["bash", NO_TOOL]
    assert tools["bash"].statuses == {"ok": 2}
    assert (tools["bash"].failed, tools["bash"].seconds) == (1, 0.5)
    assert tools[NO_TOOL].statuses == {"invalid_json": 1}


def test_masked_episodes_are_in_no_mean_reward() -> None:
    found = counted(trajectory("a"), failed(trajectory("b")))
    assert (found.rewards.mean, len(found.rewards.values)) == (1.0, 1)
    assert found.to_dict()["failures"] == {"SandboxError": 1}


def test_turns_groups_and_owners_are_counted() -> None:
    one = trajectory("a")
    worse = replace(trajectory("a", 1), reward=Reward((RewardTerm("resolved", 0.0),)))
    found = counted(one, worse, trajectory("b"), failed(trajectory("c")))

    assert (found.groups, found.groups_with_signal) == (2, 1)
    assert found.owners == {"sandbox": 1}
    record = found.to_dict()
    assert record["groups"] == {"graded": 2, "with_signal": 1}
    assert record["cached_share"] == pytest.approx(9 / (20 + 27 + 34))
    turns = record["per_turn"]
    assert isinstance(turns, dict)
    assert (turns["engine_s"]["count"], turns["engine_s"]["max"]) == (12, 1.0)
    assert turns["tools_s"]["p50"] == pytest.approx(0.5, rel=0.04)


def test_names_that_a_policy_invents_are_counted_together() -> None:
    found = trajectory()
    calls = tuple(ToolCall(CallStatus.UNKNOWN_TOOL, "", f"tool {n}") for n in range(8000))
    seen = tuple(Observation("no", timed_out=True, truncated=True) for _ in calls)
    wild = replace(found, turns=(replace(found.turns[0], tool_calls=calls, observations=seen),))
    counts = counted(wild, found)
    assert len(counts._tools) <= 1002
    tools = counts.tools
    assert set(tools) == {NO_TOOL, "bash"}
    assert tools[NO_TOOL].statuses == {"unknown_tool": 8000, "invalid_json": 1}
    assert (tools[NO_TOOL].timed_out, tools[NO_TOOL].truncated) == (8000, 8000)


def test_a_name_that_ran_keeps_its_failed_attempts() -> None:
    found = trajectory()
    bad = ToolCall(CallStatus.BAD_ARGUMENTS, "", "bash")
    turn = replace(found.turns[1], tool_calls=(bad,))
    tools = counted(replace(found, turns=(turn, found.turns[0]))).tools
    assert tools["bash"].statuses == {"ok": 2, "bad_arguments": 1}


def test_nothing_has_no_mean() -> None:
    empty = Distribution()
    assert (empty.mean, empty.deviation, empty.quantile(0.5), empty.total) == (None, None, None, 0)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.floats(0, 1))
def test_a_quantile_is_a_value_that_enough_do_not_exceed(values: list[float], share: float) -> None:
    found = Distribution()
    for value in values:
        found.add(value)
    quantile = found.quantile(share)
    assert quantile in values
    assert quantile is not None
    assert sum(value <= quantile for value in values) >= share * len(values) - 1e-9
    assert found.mean == pytest.approx(sum(values) / len(values))
