"""Advantages by group: uneven groups, failures and fan-out, against a reference of their own."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_rollout.integrations.slime import has_reward, reward_post_process
from unit.integrations.slime_fields import Sample, arguments

rewards = st.sampled_from([None, 0.0, 0.25, 1.0, -3.0])
groups = st.lists(st.lists(st.tuples(rewards, st.integers(1, 3)), max_size=6), max_size=4)


def flattened(drawn: Sequence[Sequence[tuple[float | None, int]]]) -> list[Any]:
    """Each rollout as often as it has branches."""
    samples, index = [], 0
    for number, group in enumerate(drawn):
        for reward, branches in group:
            index += 1
            samples += [
                Sample(index=index, rollout_id=index, group_index=number, reward=reward)
                for _ in range(branches)
            ]
    return samples


@given(groups)
def test_advantages_are_those_of_each_group_alone(
    drawn: list[list[tuple[float | None, int]]],
) -> None:
    raw, advantages = reward_post_process(arguments(), flattened(drawn))

    found = iter(zip(raw, advantages, strict=True))
    for group in drawn:
        graded = [reward for reward, _ in group if reward is not None]
        for reward, branches in group:
            for _ in range(branches):
                shown, advantage = next(found)
                if reward is None:
                    assert advantage == 0
                    continue
                assert shown == reward
                spread = stdev(graded) if len(set(graded)) > 1 else None
                wanted = (reward - fmean(graded)) / (spread + 1e-6) if spread else 0.0
                assert advantage == pytest.approx(wanted)


def test_a_failure_changes_no_other_advantage_and_no_mean_of_the_log() -> None:
    clean = [Sample(index=i, group_index=0, reward=r) for i, r in enumerate([1.0, 0.0, 0.0])]
    broken = Sample(index=9, group_index=0, reward=None)

    raw, advantages = reward_post_process(arguments(), clean)
    raw_too, advantages_too = reward_post_process(arguments(), [*clean, broken])

    assert advantages_too == [*advantages, 0.0]
    assert fmean(raw_too) == pytest.approx(fmean(raw))


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"grpo_std_normalization": False}, [0.5, -0.5]),
        ({"advantage_estimator": "reinforce_plus_plus_baseline"}, [0.5, -0.5]),
        ({"rewards_normalization": False}, [1.0, 0.0]),
        ({"advantage_estimator": "ppo"}, [1.0, 0.0]),
    ],
)
def test_slimes_settings_hold(settings: dict[str, object], wanted: list[float]) -> None:
    samples = [Sample(index=i, group_index=0, reward=r) for i, r in enumerate([1.0, 0.0])]
    assert reward_post_process(arguments(**settings), samples)[1] == wanted


def test_samples_without_a_group_are_grouped_by_their_number() -> None:
    samples = [Sample(index=i, reward=r) for i, r in enumerate([1.0, 0.0, 5.0, 5.0])]
    _, advantages = reward_post_process(arguments(grpo_std_normalization=False), samples)
    assert advantages == [0.5, -0.5, 0.0, 0.0]


def test_rewards_with_a_key_are_read_by_it() -> None:
    samples = [Sample(index=i, group_index=0, reward={"s": float(i)}) for i in range(2)]
    assert reward_post_process(arguments(reward_key="s"), samples)[0] == [0.0, 1.0]


def test_a_group_in_which_all_failed_is_dropped_and_no_other() -> None:
    graded, broken = Sample(index=0, reward=0.0), Sample(index=1, reward=None)
    assert has_reward(arguments(), [broken, graded])
    assert has_reward(arguments(), [broken, [broken, graded]])
    assert not has_reward(arguments(), [broken, [broken]])
