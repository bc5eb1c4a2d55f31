"""Tinker: the samples of episodes as data for its `forward_backward`.

    data = [d for t, advantage in zip(trajectories, advantages) for d in datums(t, advantage)]
    client.forward_backward([without_mask(each) for each in data], "importance_sampling")

Tinker trains position i on token i + 1: the input lacks the last token, the targets lack the first,
and every column is cut like the targets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from swe_rollout.errors import UsageError
from swe_rollout.integrations.adapter import needed
from swe_rollout.tokens.branch import Branch
from swe_rollout.tokens.log import SegmentKind
from swe_rollout.training.samples import TrainingSample, training_samples
from swe_rollout.types.trajectory import Trajectory

with needed("tinker"):
    import tinker

if TYPE_CHECKING:
    from tinker_cookbook.rl.types import Trajectory as CookbookTrajectory
    from tinker_cookbook.rl.types import TrajectoryGroup


def datums(trajectory: Trajectory, advantage: float) -> list[tinker.Datum]:
    """Return a datum for each branch of an episode; empty if it was not graded."""
    samples = training_samples(trajectory)
    return [datum(sample, advantage) for sample in samples if sample.is_trainable]


def datum(sample: TrainingSample, advantage: float) -> tinker.Datum:
    """Return a sample as a datum, `[prompt + response - 1]`; sampled tokens have the advantage.

    Raises UsageError for a sample that must not be trained on.
    """
    if not sample.is_trainable:
        raise UsageError(f"{sample} can't be trained on", why="it has no reward, or no tokens")
    head = (0.0,) * len(sample.prompt_ids)
    mask = np.array([*head, *sample.loss_mask][1:], dtype=np.float32)
    return tinker.Datum(
        model_input=tinker.ModelInput.from_ints(list(sample.token_ids[:-1])),
        loss_fn_inputs={
            "target_tokens": _column(sample.token_ids[1:], np.int64),
            "logprobs": _column([*head, *sample.logprobs][1:], np.float32),
            "advantages": tinker.TensorData.from_numpy(mask * np.float32(advantage)),
            "mask": tinker.TensorData.from_numpy(mask),
        },
    )


def without_mask(found: tinker.Datum) -> tinker.Datum:
    """Return a datum as the service accepts it; advantages are 0 where the mask is 0."""
    inputs = {name: each for name, each in found.loss_fn_inputs.items() if name != "mask"}
    return replace(found, loss_fn_inputs=inputs)


def trajectory_group(trajectories: Iterable[Trajectory]) -> TrajectoryGroup:
    """Return the episodes of a task as the cookbook's group, for its advantages and data.

    Ungraded episodes are left out, since they enter no mean. Raises UsageError if none remain.
    """
    from tinker_cookbook.rl.types import TrajectoryGroup

    graded = [(each, each.reward) for each in trajectories if not each.masked]
    kept = [(each, reward.value) for each, reward in graded if reward is not None]
    if not kept:
        raise UsageError("no episode of the group was graded")
    return TrajectoryGroup(
        [cookbook_trajectory(each) for each, _ in kept],
        [reward for _, reward in kept],
        [{"turns": len(each.turns)} for each, _ in kept],
    )


def cookbook_trajectory(trajectory: Trajectory) -> CookbookTrajectory:
    """Return an episode as the cookbook's transitions: what a turn read, and what it sampled."""
    from tinker_cookbook.completers import TokensWithLogprobs
    from tinker_cookbook.rl.types import Trajectory, Transition

    actions = [(branch, run) for branch in trajectory.trained for run in _sampled_runs(branch)]
    transitions = [
        Transition(
            ob=tinker.ModelInput.from_ints(list(branch.token_ids[:start])),
            ac=TokensWithLogprobs(
                tokens=list(branch.token_ids[start:end]),
                maybe_logprobs=[each or 0.0 for each in branch.logprobs[start:end]],
            ),
            reward=0.0,
            episode_done=index == len(actions),
        )
        for index, (branch, (start, end)) in enumerate(actions, start=1)
    ]
    return Trajectory(transitions, tinker.ModelInput.empty(), trajectory.stop_reason)


def _sampled_runs(branch: Branch) -> Iterator[tuple[int, int]]:
    """Yield where the tokens of each turn begin and end; aborts and new weights do not end one.

    Tokens that are not trained on, such as turns that a fork inherited, count as read.
    """
    kinds = (each for each in branch.segments if each.kind is SegmentKind.SAMPLED)
    sampled = (each for each in kinds if branch.loss_mask[each.start])
    for _, run in groupby(sampled, key=lambda segment: segment.turn):
        first, *others = run
        yield first.start, (others or [first])[-1].end


def _column(values: Sequence[float], dtype: type[np.generic]) -> tinker.TensorData:
    return tinker.TensorData.from_numpy(np.array(values, dtype=dtype))
