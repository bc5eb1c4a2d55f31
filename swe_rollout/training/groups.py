"""Groups of samples that compete on one task, and their advantages: GRPO, Dr. GRPO and RLOO.

Trainers assume groups of equal size with all rewards. Here a group is whatever shares a `group_id`.
A failed sample has no reward, and enters neither mean nor deviation; a rollout counts once, however
many samples it produced and however often it was delivered.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import Protocol, Self

from swe_rollout.errors import Boundary, InternalError, UsageError
from swe_rollout.text.notebook_html import ROWS, Table, card
from swe_rollout.tokens.log import SegmentKind
from swe_rollout.training.samples import TrainingSample, training_samples
from swe_rollout.types.trajectory import Trajectory

EPSILON = 1e-6
"""Added to the deviation, as verl and slime do. TRL adds 1e-4."""
_REWARDS_SHOWN = 64
_LARGEST = 1e100
"""The largest accepted reward: far above any real one, and safe from overflow."""


class Scored(Protocol):
    """A sample with its reward, such as a `TrainingSample`."""

    @property
    def rollout_id(self) -> str:
        """The episode of the sample; several samples may be branches of one episode."""
        ...

    @property
    def group_id(self) -> str:
        """The task within which the sample is compared."""
        ...

    @property
    def reward(self) -> float | None:
        """The reward; None if the sample failed or was not graded, and is not trained on."""
        ...


@dataclass(frozen=True, slots=True)
class Score:
    """The reward of one sample, for callers that have no `TrainingSample`."""

    rollout_id: str
    group_id: str
    reward: float | None


class Baseline(StrEnum):
    """What is subtracted from a reward."""

    MEAN = "mean"
    """The mean of the group (GRPO, Dr. GRPO)."""
    LEAVE_ONE_OUT = "leave_one_out"
    """The mean of the others in the group (RLOO)."""


class Scale(StrEnum):
    """What the difference is divided by."""

    SAMPLE_STD = "sample_std"
    """The deviation with n - 1 degrees of freedom, plus epsilon, as `torch.std` computes it in TRL,
    verl and slime (GRPO)."""
    POPULATION_STD = "population_std"
    """The deviation with n degrees of freedom, plus epsilon, as `numpy.std` computes it."""
    NONE = "none"
    """Nothing (Dr. GRPO, RLOO)."""


@dataclass(frozen=True, slots=True)
class FailedSample:
    """A sample that failed for a technical reason. It has neither reward nor weight."""

    rollout_id: str
    owner: Boundary
    type: str
    message: str

    @classmethod
    def of(cls, trajectory: Trajectory) -> Self:
        """Read it from the record of a failed episode."""
        failure = trajectory.failure
        if failure is None:
            raise InternalError(f"{trajectory.episode} did not fail")
        return cls(str(trajectory.episode), failure.boundary, failure.type, failure.message)


@dataclass(frozen=True, slots=True)
class Group:
    """The samples of one task, which a trainer compares with each other."""

    group_id: str
    """`job/instance`."""
    wanted: int
    """The number of samples that the job asks for."""
    trajectories: tuple[Trajectory, ...]
    """One for each sample that did not fail, in the order of the samples; a replacement for a
    failed sample takes its place."""
    failed: tuple[FailedSample, ...] = ()
    """The samples that failed; most were replaced by another sample."""
    duplicates: int = 0
    """Number of samples that arrived more than once; each is here once."""
    lag: int | None = None
    """Weight versions between the oldest one that sampled a token and the one that the trainer
    announced; None if unknown."""
    stale: bool = False
    """Whether the lag exceeds the trainer's bound."""

    def __repr__(self) -> str:
        size = f"{len(self.trajectories)}/{self.wanted} samples, {len(self.failed)} failed"
        marks = (", no signal" * (not self.has_signal)) + (", stale" * self.stale)
        return f"<Group {self.group_id}: {size}{marks}>"

    def _repr_html_(self) -> str:
        """Show the group as a card in a notebook."""
        rewards = (
            f"{each:g}" if each is not None else "–" for each in self.rewards[:_REWARDS_SHOWN]
        )
        facts = {
            "samples": f"{len(self.trajectories)} of {self.wanted}",
            "rewards": " · ".join(rewards),
            "signal": "yes" if self.has_signal else "none: all rewards are equal",
            "failed": " · ".join(f"{each.owner} {each.type}" for each in self.failed[:ROWS]),
            "duplicates": str(self.duplicates or ""),
            "lag": "" if self.lag is None else f"{self.lag} weight versions",
            "stale": "yes" if self.stale else "",
        }
        rows = [
            [
                str(each.episode.sample),
                str(each.stop_reason or ""),
                str(each.verdict.status) if each.verdict else "–",
                f"{each.reward.value:g}" if each.reward else "–",
                str(len(each.turns)),
                f"{each.token_count:,}",
            ]
            for each in self.trajectories[:ROWS]
        ]
        columns = ("sample", "ended", "verdict", "reward", "turns", "tokens")
        table = Table(columns, rows, total=len(self.trajectories))
        return card(f"Group {self.group_id}", facts, table=table)

    @property
    def instance(self) -> str:
        """The id of the task."""
        return self.group_id.partition("/")[2]

    @property
    def samples(self) -> tuple[TrainingSample, ...]:
        """All branches of all trajectories, for a trainer."""
        return tuple(chain.from_iterable(map(training_samples, self.trajectories)))

    @property
    def is_short(self) -> bool:
        """Whether the group has fewer samples than wanted."""
        return len(self.trajectories) < self.wanted

    @property
    def rewards(self) -> tuple[float | None, ...]:
        """The reward of each trajectory; None if it was not graded."""
        return tuple(
            None if each.reward is None else each.reward.value for each in self.trajectories
        )

    @property
    def has_signal(self) -> bool:
        """Whether the rewards differ."""
        return has_signal(self.rewards)

    def advantages(
        self,
        *,
        baseline: Baseline = Baseline.MEAN,
        scale: Scale = Scale.SAMPLE_STD,
        epsilon: float = EPSILON,
    ) -> tuple[float | None, ...]:
        """Return the advantage of each of `samples`; see `grpo_advantages`."""
        return grpo_advantages(self.samples, baseline=baseline, scale=scale, epsilon=epsilon)

    @property
    def weight_versions(self) -> frozenset[str | None]:
        """The versions that sampled the group's tokens; includes None if an engine named none.

        Inherited tokens of a fork that are not trained on are left out.
        """
        return frozenset(
            segment.weight_version
            for trajectory in self.trajectories
            for branch in trajectory.samples
            for segment in branch.segments
            if segment.kind is SegmentKind.SAMPLED
            and (branch.index or segment.start >= trajectory.untrained_tokens)
        )


def grpo_advantages(
    samples: Sequence[Scored],
    *,
    baseline: Baseline = Baseline.MEAN,
    scale: Scale = Scale.SAMPLE_STD,
    epsilon: float = EPSILON,
) -> tuple[float | None, ...]:
    """Return the advantage of each sample within its group, in the order of `samples`.

    None where the reward is None: do not train on that sample, at any weight. All samples of a
    rollout get the same advantage. It is exactly 0 in a group without signal, where all rewards are
    equal or there is only one. Raises UsageError for an unusable reward, for two rewards of one
    rollout, and for anything but a sample.
    """
    _require_scored(samples)
    groups: dict[str, dict[str, float]] = {}
    for each in samples:
        if each.reward is not None:
            rewards = groups.setdefault(each.group_id, {})
            if rewards.setdefault(each.rollout_id, _finite(each)) != each.reward:
                raise UsageError(
                    f"{each.rollout_id} has two rewards",
                    why="the samples of a rollout share its reward, which counts once in the group",
                    fix="give rollouts ids of their own, or their samples the same reward",
                )
    advantages = {
        group: _advantages(rewards, baseline=baseline, scale=scale, epsilon=epsilon)
        for group, rewards in groups.items()
    }
    return tuple(
        None if each.reward is None else advantages[each.group_id][each.rollout_id]
        for each in samples
    )


def rollout_weights(samples: Sequence[Scored]) -> tuple[float, ...]:
    """Return the share of each sample in its rollout, for a loss that is a mean over samples.

    A rollout of k samples weighs 1 in total, 1/k each; one without a reward weighs 0. A loss that
    sums over tokens needs no weights: each sampled token is in one sample. Raises UsageError for
    anything but a sample.
    """
    _require_scored(samples)
    graded = [(each.group_id, each.rollout_id) for each in samples if each.reward is not None]
    branches = Counter(graded)
    return tuple(
        0.0 if each.reward is None else 1 / branches[each.group_id, each.rollout_id]
        for each in samples
    )


def _require_scored(samples: Sequence[object]) -> None:
    """Raise UsageError if given plain rewards, or trajectories in lists by group."""
    wrong = next((each for each in samples if not hasattr(each, "rollout_id")), None)
    if wrong is not None:
        raise UsageError(
            f"{type(wrong).__name__} is no sample",
            why="a sample has a reward, and says which rollout and which group it is of",
            fix="give the samples of all groups in one list: "
            "[s for t in trajectories for s in training_samples(t)]",
        )


def has_signal(rewards: Collection[float | None]) -> bool:
    """Whether rewards differ: a group with equal rewards moves no weight."""
    return len({reward for reward in rewards if reward is not None}) > 1


def groups_without_signal(samples: Sequence[Scored]) -> tuple[str, ...]:
    """Return the ids of the groups that move no weight, in order of appearance."""
    rewards: dict[str, list[float | None]] = {}
    for each in samples:
        rewards.setdefault(each.group_id, []).append(each.reward)
    return tuple(group for group, found in rewards.items() if not has_signal(found))


def _advantages(
    rewards: dict[str, float], *, baseline: Baseline, scale: Scale, epsilon: float
) -> dict[str, float]:
    """Return the advantage of each rollout of one group."""
    count = len(rewards)
    if not has_signal(rewards.values()):
        # Exactly 0: a mean is rounded, and a deviation near 0 would magnify the rounding error.
        return dict.fromkeys(rewards, 0.0)
    mean = math.fsum(rewards.values()) / count
    differences = {name: reward - mean for name, reward in rewards.items()}
    if scale is Scale.NONE:
        divisor = 1.0
    else:
        freedom = count - 1 if scale is Scale.SAMPLE_STD else count
        divisor = math.hypot(*differences.values()) / math.sqrt(freedom) + epsilon
    # The mean of the others is further away than the group's mean by this factor.
    factor = count / (count - 1) if baseline is Baseline.LEAVE_ONE_OUT else 1.0
    return {name: factor * difference / divisor for name, difference in differences.items()}


def _finite(sample: Scored) -> float:
    reward = sample.reward
    if reward is None or not abs(reward) <= _LARGEST:
        raise UsageError(
            f"the reward of {sample.rollout_id} is {reward}",
            why="it would make every advantage of its group meaningless",
            fix="give a sample without a usable reward None",
        )
    return reward
