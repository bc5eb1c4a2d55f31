"""Rewards and advantages of slime's samples by group, whatever became of their episodes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from statistics import fmean
from typing import Any, Final

from swe_rollout.training.groups import Scale, Score, grpo_advantages

_NORMALIZED: Final = ("grpo", "gspo", "cispo", "reinforce_plus_plus_baseline")
_SCALED: Final = ("grpo", "gspo", "cispo")


def reward_post_process(args: Any, samples: Sequence[Any]) -> tuple[list[float], list[float]]:
    """Return the raw reward of each sample, and its advantage within its group.

    A group is what shares `group_index`, of any size: a sample without reward is in no mean, and
    the samples of one `rollout_id` count once. What has no reward has advantage 0, and the mean of
    its group as raw reward, which is only logged: it moves neither weights nor curves.
    """
    scores = [
        Score(repr(_rollout(each)), repr(_group(args, each)), _score(args, each))
        for each in samples
    ]
    means = _means(scores)
    overall = fmean(means.values()) if means else 0.0
    raw = [
        means.get(each.group_id, overall) if each.reward is None else each.reward for each in scores
    ]
    advantages = (0.0 if each is None else each for each in _advantages(args, scores))
    return raw, list(advantages)


def _means(scores: Sequence[Score]) -> dict[str, float]:
    """Return the mean reward of each group that has one, each rollout counted once."""
    groups: dict[str, dict[str, float]] = {}
    for each in scores:
        if each.reward is not None:
            groups.setdefault(each.group_id, {})[each.rollout_id] = each.reward
    return {group: fmean(rewards.values()) for group, rewards in groups.items()}


def _advantages(args: Any, scores: Sequence[Score]) -> Sequence[float | None]:
    estimator = getattr(args, "advantage_estimator", "grpo")
    if estimator not in _NORMALIZED or not getattr(args, "rewards_normalization", True):
        return [each.reward for each in scores]
    scaled = estimator in _SCALED and getattr(args, "grpo_std_normalization", True)
    scale = Scale.SAMPLE_STD if scaled else Scale.NONE
    return grpo_advantages(scores, scale=scale)


def has_reward(args: Any, samples: Sequence[Any], **_: Any) -> bool:
    """Whether a group has a sample with a reward: the filter that slime needs for the others.

    slime's own metrics stop at a group in which all failed.
    """
    flat = [
        each for sample in samples for each in (sample if isinstance(sample, list) else [sample])
    ]
    return any(_score(args, each) is not None for each in flat)


def _score(args: Any, sample: Any) -> float | None:
    key = getattr(args, "reward_key", None)
    reward = sample.reward[key] if key and isinstance(sample.reward, dict) else sample.reward
    return None if reward is None else float(reward)


def _group(args: Any, sample: Any) -> Hashable:
    if sample.group_index is not None:
        return ("group", sample.group_index)
    size = getattr(args, "n_samples_per_prompt", None)
    return ("index", sample.index // size) if size and sample.index is not None else ("all",)


def _rollout(sample: Any) -> Hashable:
    for name in ("rollout_id", "index"):
        if (found := getattr(sample, name)) is not None:
            return (name, found)
    return ("object", id(sample))
