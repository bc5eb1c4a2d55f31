"""Samples in the forms that TRL accepts, and checks for what it can't accept.

GRPOTrainer takes columns with a row for each prompt, AsyncGRPOTrainer takes rows of groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from swe_rollout.errors import UsageError
from swe_rollout.spec.policy import Sampling
from swe_rollout.training.groups import grpo_advantages
from swe_rollout.training.samples import SampleStatus, TrainingSample, training_samples
from swe_rollout.types.trajectory import Trajectory

if TYPE_CHECKING:
    from trl import GRPOConfig, GRPOTrainer
    from trl.experimental.async_grpo import AsyncGRPOConfig
    from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

TRL_EPSILON = 1e-4
"""Added to the deviation of a group, as in GRPOTrainer."""


class RolloutColumns(TypedDict):
    """One item per row. TRL takes the first four columns, its reward functions get the others."""

    prompt_ids: list[list[int]]
    completion_ids: list[list[int]]
    logprobs: list[list[float]]
    env_mask: list[list[int]]
    """1 where the policy sampled the token, else 0."""
    reward: list[float | None]
    rollout_id: list[str]
    status: list[str]


def columns(samples: Sequence[TrainingSample], *, pad: int, temperature: float) -> RolloutColumns:
    """Return the rows of samples; failed samples are masked and have no reward.

    TRL can't take a row without a completion: it and a failed sample get a single token `pad` with
    mask 0. Raises UsageError for a token that was sampled at another temperature.
    """
    found = RolloutColumns(
        prompt_ids=[], completion_ids=[], logprobs=[], env_mask=[], reward=[], rollout_id=[],
        status=[],
    )  # fmt: skip
    for sample in samples:
        require_temperature(sample, temperature)
        failed = sample.status is SampleStatus.FAILED or sample.reward is None
        is_empty = failed or not sample.response_ids
        found["prompt_ids"].append(list(sample.prompt_ids) or [pad])
        found["completion_ids"].append([pad] if is_empty else list(sample.response_ids))
        found["logprobs"].append([0.0] if is_empty else list(sample.logprobs))
        found["env_mask"].append([0] if is_empty else list(sample.loss_mask))
        found["reward"].append(None if failed else sample.reward)
        found["rollout_id"].append(sample.rollout_id)
        found["status"].append(sample.status.value)
    return found


def rollout_samples(
    trajectories: Sequence[Trajectory], group: int, *, temperature: float, version: int
) -> list[RolloutSample]:
    """Return the rows of a group; `version` is used for tokens whose engine names none."""
    from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

    branches = [(each, sample) for each in trajectories for sample in training_samples(each)]
    samples = [sample for _, sample in branches]
    rows = []
    for (trajectory, sample), advantage in zip(
        branches, grpo_advantages(samples, epsilon=TRL_EPSILON), strict=True
    ):
        if advantage is None or not sample.is_trainable or trajectory.failure is not None:
            continue
        require_temperature(sample, temperature)
        before = len(sample.prompt_ids)
        rows.append(
            RolloutSample(
                prompt=[{"role": each.role, "content": each.text} for each in trajectory.prompts],
                completion=[
                    {"role": "assistant", "content": turn.text}
                    for turn in trajectory.turns
                    if turn.branch == sample.branch
                ],
                input_ids=np.asarray(sample.token_ids, dtype=np.int64),
                completion_mask=np.asarray([0] * before + list(sample.loss_mask), np.int64),
                old_log_probs=np.asarray([0.0] * before + list(sample.logprobs), np.float32),
                advantage=advantage,
                model_version=oldest_version(sample, version),
                group_id=group,
                metrics={"reward": sample.reward or 0.0},
            )
        )
    return rows


def oldest_version(sample: TrainingSample, otherwise: int) -> int:
    """Return the oldest weights that sampled a token, by which TRL drops stale samples."""
    named = {each for each in sample.weight_versions if each is not None}
    numbers = [int(each) for each in named if each.isdecimal()]
    return min(numbers) if numbers and len(numbers) == len(named) else otherwise


def sampling_of(args: GRPOConfig | AsyncGRPOConfig) -> Sampling:
    """Return a trainer's sampling parameters; raises UsageError for what engines lack."""
    if args.repetition_penalty != 1.0:
        raise UsageError(
            f"repetition_penalty={args.repetition_penalty:g} can't be sampled with",
            why="the logprobs of an engine do not contain it",
            fix="leave it at 1.0",
        )
    return Sampling(
        temperature=args.temperature,
        top_p=args.top_p,
        # TRL uses 0 or None for the whole vocabulary.
        top_k=args.top_k or -1,
        min_p=args.min_p or 0.0,
    )


def require_rollouts(trainer: GRPOTrainer) -> None:
    """Raise UsageError for options of a GRPOTrainer that don't work with episodes."""
    refused = {
        "tools": (bool(trainer.tools), "give the tools to the job: spec.agent.tools"),
        "environment_factory": (
            trainer.environments is not None,
            "leave it out: the job's sandboxes are the environment",
        ),
        "use_vllm": (trainer.use_vllm, "leave it out: spec.policy names the engine"),
        "peft_config": (
            hasattr(trainer.accelerator.unwrap_model(trainer.model), "peft_config"),
            "train all weights: the servers load checkpoints, not adapters",
        ),
    }
    for name, (is_set, fix) in refused.items():
        if is_set:
            raise UsageError(f"{name} can't be used with rollouts of a job", fix=fix)


def require_temperature(sample: TrainingSample, temperature: float) -> None:
    """Raise UsageError for a token that was not sampled at the trainer's temperature."""
    others = {
        each
        for each, mask in zip(sample.temperatures, sample.loss_mask, strict=True)
        if mask and each != temperature
    }
    if others:
        raise UsageError(
            f"{sample.rollout_id} was sampled at temperature {min(others):g}, not {temperature:g}",
            why="TRL computes the logprobs of all tokens at its own temperature",
            fix="don't set a temperature in the agent program",
        )
