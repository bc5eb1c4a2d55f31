"""SkyRL: batches of its own form in, its own validator and advantages over what comes out."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pytest
import torch
from skyrl.backends.skyrl_train.utils.ppo_utils import compute_advantages_and_returns
from skyrl.train.config import AlgorithmConfig
from skyrl.train.dataset.preprocess import compute_prompt_mini_batch_boundaries
from skyrl.train.generators.base import BatchMetadata, GeneratorInterface, TrajectoryID
from skyrl.train.generators.utils import concatenate_generator_outputs, prepare_generator_input
from skyrl.train.utils.trainer_utils import validate_generator_output

from swe_rollout.errors import UsageError
from swe_rollout.integrations.skyrl import SweGenerator
from swe_rollout.integrations.skyrl_engine import SkyRLEngine
from swe_rollout.testing.ratio import RatioRow, check_ratio, forced
from swe_rollout.testing.tiny import tokenizer_path
from trainers.generators.forced import ForcedPolicy
from trainers.generators.in_memory import TASKS, in_memory_job

pytestmark = pytest.mark.trainers

TEMPERATURE = 0.7


class InferenceClient:
    """SkyRL's client, as `RemoteInferenceClient.generate` answers, over the forced policy."""

    def __init__(self, policy: ForcedPolicy) -> None:
        self._policy = policy

    async def generate(self, input_batch: dict[str, Any]) -> Any:
        (ids,), params = input_batch["prompt_token_ids"], input_batch["sampling_params"]
        assert params["logprobs"] is not None
        (episode,) = input_batch["session_ids"]
        said = self._policy.sample(
            ids,
            episode=episode,
            limit=params["max_tokens"],
            temperature=params["temperature"],
        )
        return {
            "responses": [""],
            "response_ids": [said.ids],
            "stop_reasons": [said.finish],
            "response_logprobs": [said.logprobs],
        }


def batch_of(samples: int) -> dict[str, Any]:
    """A batch as SkyRL's trainer makes it from its dataset."""
    prompts: list[dict[str, Any]] = [
        {"prompt": [], "env_class": None, "env_extras": {"instance_id": task}, "uid": f"row-{at}"}
        for at, task in enumerate(TASKS)
    ]
    params = {"temperature": TEMPERATURE, "max_tokens": 5}
    batch: dict[str, Any] = prepare_generator_input(prompts, samples, params, "swe", "train", 1)[0]
    return batch


async def generate(
    policy: ForcedPolicy, *, samples: int = 2, lost: Collection[tuple[str, int]] = ()
) -> tuple[dict[str, Any], dict[str, Any]]:
    batch = batch_of(samples)
    engine = SkyRLEngine(InferenceClient(policy), str(tokenizer_path()))
    generator = SweGenerator(in_memory_job(lost=lost), engine=engine)
    assert isinstance(generator, GeneratorInterface)
    try:
        return batch, await generator.generate(batch)
    finally:
        await generator.aclose()


def rows(output: dict[str, Any], policy: ForcedPolicy) -> list[RatioRow]:
    columns = zip(
        output["prompt_token_ids"],
        output["response_ids"],
        output["loss_masks"],
        output["rollout_logprobs"],
        strict=True,
    )
    return [
        RatioRow(
            prompt + response,
            len(prompt),
            mask,
            logprobs,
            [TEMPERATURE] * len(response),
            policy.versions(prompt + response, len(prompt), mask),
        )
        for prompt, response, mask, logprobs in columns
    ]


async def test_a_batch_passes_skyrls_validator_in_the_order_of_its_prompts(
    policy: ForcedPolicy,
) -> None:
    batch, output = await generate(policy)

    validate_generator_output(len(batch["prompts"]), output, step_wise=True)
    ends = zip(output["trajectory_ids"], output["is_last_step"], strict=True)
    assert [each for each, is_last in ends if is_last] == batch["trajectory_ids"]
    # Each episode has a branch of its sub-agent.
    assert len(output["response_ids"]) == 2 * len(batch["prompts"])
    assert output["rewards"] == [1.0, 1.0, 0.0, 0.0] * 2
    assert set(output["stop_reasons"]) == {"stop"}
    merged = concatenate_generator_outputs([output, output][:1], step_wise=True)
    assert merged["response_ids"] == output["response_ids"]


async def test_the_ratio_is_one_on_every_trained_token(policy: ForcedPolicy) -> None:
    _, output = await generate(policy)
    found = rows(output, policy)

    report = check_ratio(found, forced(policy.teacher())).require()

    assert report.tokens > 300
    assert {each for row in found for each in row.weight_versions or ()} == {None, "3", "4"}


async def test_a_lost_episode_changes_no_advantage_of_the_others(policy: ForcedPolicy) -> None:
    batch, clean = await generate(policy, samples=4)
    _, output = await generate(policy, samples=4, lost=[("task-a", 1)])

    validate_generator_output(len(batch["prompts"]), output, step_wise=True)
    assert output["rollout_metrics"] == {"generate/failed_episodes": 1}
    uids = [each.instance_id for each in output["trajectory_ids"]]
    assert (
        len(
            compute_prompt_mini_batch_boundaries(
                uids, 1, 2, is_stepwise=True, n_samples_per_prompt=4
            )
        )
        == 2
    )
    expected = advantages(clean, leave_out=TrajectoryID("row-0", 1))
    assert advantages(output) == pytest.approx(expected)


def advantages(output: dict[str, Any], *, leave_out: TrajectoryID | None = None) -> list[float]:
    """SkyRL's own, of the last rows of episodes, as its trainer takes them."""
    columns = zip(output["trajectory_ids"], output["rewards"], output["is_last_step"], strict=True)
    kept = [(each, reward) for each, reward, last in columns if last and each != leave_out]
    found, _ = compute_advantages_and_returns(
        token_level_rewards=torch.tensor([[reward] for _, reward in kept]),
        response_mask=torch.ones(len(kept), 1),
        index=np.array([each.instance_id for each, _ in kept]),
        adv_estimator="grpo",
        config=AlgorithmConfig(),
    )
    return [float(each) for each in found[:, 0]]


async def test_a_dataset_without_tasks_is_refused(policy: ForcedPolicy) -> None:
    engine = SkyRLEngine(InferenceClient(policy), str(tokenizer_path()))
    generator = SweGenerator(in_memory_job(), engine=engine)
    batch = {
        "prompts": [[]],
        "env_classes": ["swe"],
        "env_extras": [{}],
        "sampling_params": None,
        "trajectory_ids": [TrajectoryID("a", 0)],
        "batch_metadata": BatchMetadata(1, "train"),
    }
    with pytest.raises(UsageError, match="no column instance_id"):
        await generator.generate(batch)
    await generator.aclose()
