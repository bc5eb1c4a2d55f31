"""Episodes as the tensors of AReaL's workflows: a row for each branch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TypeAlias

import torch

from swe_rollout.errors import UsageError
from swe_rollout.training.samples import TrainingSample, training_samples
from swe_rollout.types.trajectory import Trajectory

Tensors: TypeAlias = "dict[str, torch.Tensor]"

_EPSILON = 1e-6
_NOT_SAMPLED = -1
"""AReaL's version of a token that no weights sampled."""


def tensors(group: Sequence[Trajectory]) -> Tensors | None:
    """Return the branches of graded episodes as rows, `[rows, longest]`; None if none is left.

    A single episode keeps its reward; those of a group are relative to its mean and deviation.
    Raises UsageError for tokens whose weights have no number.
    """
    values = [t.reward.value for t in group if t.reward is not None and not t.masked]
    if not values or len(group) > 1 == len(values):
        return None
    mean, deviation = 0.0, 1.0
    if len(group) > 1:
        mean, deviation = fmean(values), stdev(values) + _EPSILON
    samples = [s for each in group for s in training_samples(each) if s.is_trainable]
    if not samples:
        return None
    columns = [_Columns.of(each) for each in samples]
    width = max(len(each.token_ids) for each in columns)

    def rows(values: Sequence[Sequence[float]], fill: float, dtype: torch.dtype) -> torch.Tensor:
        padded = [[*each, *[fill] * (width - len(each))] for each in values]
        return torch.tensor(padded, dtype=dtype)

    rewards = [(each.reward - mean) / deviation for each in samples if each.reward is not None]
    return {
        "input_ids": rows([each.token_ids for each in columns], 0, torch.int32),
        "loss_mask": rows([each.mask for each in columns], 0, torch.int32),
        "logprobs": rows([each.logprobs for each in columns], 0.0, torch.float32),
        "versions": rows([each.versions for each in columns], _NOT_SAMPLED, torch.int32),
        "attention_mask": rows([[1] * len(each.mask) for each in columns], 0, torch.bool),
        "rewards": torch.tensor(rewards, dtype=torch.float32),
    }


@dataclass(frozen=True, slots=True)
class _Columns:
    """A sample up to the last token that the policy sampled.

    AReaL puts the reward on the last token, and drops it where that is not trained.
    """

    token_ids: Sequence[int]
    mask: Sequence[int]
    logprobs: Sequence[float]
    versions: Sequence[int]

    @classmethod
    def of(cls, sample: TrainingSample) -> _Columns:
        head = len(sample.prompt_ids)
        mask = (0,) * head + sample.loss_mask
        end = len(mask) - mask[::-1].index(1)
        logprobs = (0.0,) * head + sample.logprobs
        versions = _versions(sample)
        return cls(sample.token_ids[:end], mask[:end], logprobs[:end], versions[:end])


def _versions(sample: TrainingSample) -> list[int]:
    """Return the weight version of each token of prompt and response."""
    found = [_NOT_SAMPLED] * len(sample.prompt_ids)
    for version, mask in zip(sample.weight_versions, sample.loss_mask, strict=True):
        if mask and (version is None or not version.isdecimal()):
            raise UsageError(
                f"{sample.rollout_id} was sampled by weights without a number: {version}",
                fix="let the episodes be sampled by AReaL's engine",
            )
        found.append(int(version) if mask and version is not None else _NOT_SAMPLED)
    return found
