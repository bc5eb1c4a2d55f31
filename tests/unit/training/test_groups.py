"""Advantages: equal to a reference per group, whatever failed, fanned out or came twice."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swe_rollout.errors import UsageError
from swe_rollout.tokens.log import SegmentKind
from swe_rollout.training.groups import (
    Baseline,
    Group,
    Scale,
    Score,
    groups_without_signal,
    grpo_advantages,
    rollout_weights,
)
from unit.export.export_parts import forked

REWARDS = st.one_of(
    st.sampled_from([0.0, 1.0]), st.floats(-1e6, 1e6, allow_nan=False, allow_subnormal=False)
)
GROUPS = st.lists(st.lists(st.one_of(st.none(), REWARDS), max_size=9), max_size=6)


def scores(groups: list[list[float | None]]) -> list[Score]:
    return [
        Score(f"job/task{group}/{sample}", f"job/task{group}", reward)
        for group, rewards in enumerate(groups)
        for sample, reward in enumerate(rewards)
    ]


def reference(
    rewards: list[float | None], baseline: Baseline, scale: Scale, epsilon: float
) -> list[float | None]:
    """One group, as its definition reads."""
    live = np.array([reward for reward in rewards if reward is not None], dtype=np.float64)
    if len(live) < 2 or np.all(live == live[0]):
        return [None if reward is None else 0.0 for reward in rewards]
    divisor = {
        Scale.NONE: 1.0,
        Scale.SAMPLE_STD: np.std(live, ddof=1) + epsilon,
        Scale.POPULATION_STD: np.std(live) + epsilon,
    }[scale]
    found: list[float | None] = []
    position = 0
    for reward in rewards:
        if reward is None:
            found.append(None)
            continue
        others = np.delete(live, position) if baseline is Baseline.LEAVE_ONE_OUT else live
        found.append(float((reward - others.mean()) / divisor))
        position += 1
    return found


def assert_equal(found: list[float | None], wanted: list[float | None]) -> None:
    assert [each is None for each in found] == [each is None for each in wanted]
    np.testing.assert_allclose(
        [each for each in found if each is not None],
        [each for each in wanted if each is not None],
        rtol=1e-6,
        atol=1e-6,
    )


@settings(deadline=None)
@given(
    groups=GROUPS,
    baseline=st.sampled_from(Baseline),
    scale=st.sampled_from(Scale),
    epsilon=st.sampled_from([1e-6, 1e-4]),
)
def test_uneven_groups_with_failures_equal_the_reference_of_each_group(
    groups: list[list[float | None]], baseline: Baseline, scale: Scale, epsilon: float
) -> None:
    """P8: advantages equal the per-group reference for uneven groups."""
    found = grpo_advantages(scores(groups), baseline=baseline, scale=scale, epsilon=epsilon)
    wanted = [each for group in groups for each in reference(group, baseline, scale, epsilon)]
    assert_equal(list(found), wanted)


@settings(deadline=None)
@given(groups=GROUPS, seed=st.integers())
def test_order_fan_out_and_duplicates_change_no_advantage(
    groups: list[list[float | None]], seed: int
) -> None:
    rows = scores(groups)
    alone = dict(zip(rows, grpo_advantages(rows), strict=True))
    chance = random.Random(seed)
    many = [row for row in rows for _ in range(chance.randint(1, 4))]
    chance.shuffle(many)

    assert_equal(list(grpo_advantages(many)), [alone[row] for row in many])
    weights = rollout_weights(many)
    for row in rows:
        share = sum(w for each, w in zip(many, weights, strict=True) if each == row)
        assert share == pytest.approx(0.0 if row.reward is None else 1.0)


@settings(deadline=None)
@given(groups=GROUPS)
def test_a_failed_sample_is_as_if_it_had_never_been(groups: list[list[float | None]]) -> None:
    rows = scores(groups)
    live = [row for row in rows if row.reward is not None]
    found = grpo_advantages(rows)
    assert [each for each in found if each is not None] == list(grpo_advantages(live))


@pytest.mark.parametrize("reward", [0.0, 0.1, 1e99, -7.3])
def test_a_group_without_signal_has_advantages_of_exactly_0_and_is_named(reward: float) -> None:
    groups: list[list[float | None]] = [[reward] * 3, [reward, None], [None, None], [0.0, 1.0]]
    rows = scores(groups)
    assert grpo_advantages(rows)[:6] == (0.0, 0.0, 0.0, 0.0, None, None)
    assert groups_without_signal(rows) == ("job/task0", "job/task1", "job/task2")


def test_the_formulas_are_those_of_the_trainers() -> None:
    """TRL: (r - mean) / (std + 1e-4) and verl's and slime's 1e-6, with n - 1; RLOO of verl:
    r·n/(n-1) - mean·n/(n-1)."""
    rewards = [1.0, 0.0, 0.0, 0.5]
    rows = scores([[*rewards]])
    mean = sum(rewards) / 4
    std = math.sqrt(sum((each - mean) ** 2 for each in rewards) / 3)
    for epsilon in (1e-6, 1e-4):
        found = grpo_advantages(rows, epsilon=epsilon)
        assert found == pytest.approx([(each - mean) / (std + epsilon) for each in rewards])
    rloo = grpo_advantages(rows, baseline=Baseline.LEAVE_ONE_OUT, scale=Scale.NONE)
    assert rloo == pytest.approx([each * 4 / 3 - mean * 4 / 3 for each in rewards])


def test_a_failure_as_reward_0_would_give_other_advantages() -> None:
    """Want 1: the mistake that the rule is about is visible in these numbers."""
    masked = grpo_advantages(scores([[1.0, 0.0, None, 1.0]]))
    as_zero = grpo_advantages(scores([[1.0, 0.0, 0.0, 1.0]]))
    assert masked[2] is None
    assert masked[0] != pytest.approx(as_zero[0])


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf, 1e308])
def test_a_reward_that_is_no_number_is_refused_by_name(reward: float) -> None:
    with pytest.raises(UsageError, match="job/task0/1 is"):
        grpo_advantages(scores([[1.0, reward]]))


def test_two_rewards_of_one_rollout_are_refused() -> None:
    first, _ = scores([[1.0, 0.0]])
    with pytest.raises(UsageError, match="has two rewards"):
        grpo_advantages([first, replace(first, reward=0.5)])


def test_the_same_rollout_id_in_two_groups_is_two_rollouts() -> None:
    rows = [Score("x", "a", 1.0), Score("y", "a", 0.0), Score("x", "b", 3.0), Score("y", "b", 3.0)]
    found = grpo_advantages(rows, scale=Scale.NONE)
    assert found == (0.5, -0.5, 0.0, 0.0)


def test_what_a_fork_inherited_does_not_make_its_group_stale() -> None:
    record = forked()
    turns = {turn.index: f"w{turn.index}" for turn in record.turns}
    segments = tuple(
        replace(each, weight_version=turns[each.turn]) if each.kind is SegmentKind.SAMPLED else each
        for each in record.segments
    )
    record = replace(record, segments=segments)
    assert record.forked_from is not None
    assert Group("demo/a", 1, (record,)).weight_versions == {"w1", "w2"}
    trained = replace(record, forked_from=replace(record.forked_from, trained=True))
    assert Group("demo/a", 1, (trained,)).weight_versions == {"w0", "w1", "w2"}
