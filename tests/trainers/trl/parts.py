"""Shared by tests beside TRL: options, its trainer over our episodes, and stand-ins for what tests
do not have: a GPU's attention, and servers that load weights.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from safetensors.torch import load_file
from transformers import AutoTokenizer, Qwen3ForCausalLM
from trl import GRPOConfig, GRPOTrainer

from swe_rollout.integrations.trl import Rollouts, SglangWeights, graded_reward
from swe_rollout.integrations.trl.columns import RolloutColumns

QUIET: dict[str, Any] = {
    "use_cpu": True,
    "bf16": False,
    "report_to": "none",
    "save_strategy": "no",
    "disable_tqdm": True,
}


def grpo_trainer(
    folder: Path,
    checkpoint: Path,
    rollouts: Rollouts,
    rollout_func: Callable[[list[str], GRPOTrainer], RolloutColumns],
    **options: Any,
) -> Any:
    """Return TRL's trainer of a checkpoint on the episodes of a job, four for each task."""
    args = GRPOConfig(
        output_dir=str(folder / "out"), num_generations=4, temperature=0.8, **QUIET, **options
    )
    return GRPOTrainer(
        model=Qwen3ForCausalLM.from_pretrained(checkpoint, dtype=torch.float32),
        args=args,
        train_dataset=Dataset.from_list(rollouts.rows()),
        processing_class=AutoTokenizer.from_pretrained(checkpoint),
        reward_funcs=graded_reward,
        rollout_func=rollout_func,
    )


def tree_attention(
    _module: Any, query: Any, key: Any, value: Any, mask: Any, *, scaling: float, **tree: Any
) -> tuple[Any, None]:
    """TRL's attention over packed rows, which it has for GPUs alone: path by path."""
    del mask
    repeats = query.size(1) // key.size(1)
    outputs = []
    for at in range(len(tree["tree_cu_seqlens_q"]) - 1):
        ours = slice(*tree["tree_cu_seqlens_q"][at : at + 2].tolist())
        path = tree["tree_kv_index"][slice(*tree["tree_cu_seqlens_k"][at : at + 2].tolist())]
        q, k, v = query[0, :, ours], key[0][:, path], value[0][:, path]
        k, v = k.repeat_interleave(repeats, 0), v.repeat_interleave(repeats, 0)
        before = len(path) - q.size(1)
        seen = torch.ones(q.size(1), len(path), dtype=torch.bool).tril(before)
        scores = (q @ k.transpose(1, 2) * scaling).masked_fill(~seen, float("-inf"))
        outputs.append(scores.softmax(-1) @ v)
    return torch.cat(outputs, 1).transpose(0, 1).unsqueeze(0), None


class Checkpoints(SglangWeights):
    """The checkpoints that servers would load; each is compared with the trainer's weights."""

    def __init__(self, config: Path, folder: Path) -> None:
        super().__init__(["http://127.0.0.1:9"], config=config, folder=folder)
        self.orders: list[str] = []
        self.loaded: list[dict[str, Any]] = []

    def _each(self, order: Any) -> None:
        self.orders.append(order.__qualname__.split(".")[1])
        for file in self._folder.glob(f"version-{self.version + 1}/*.safetensors"):
            self.loaded.append(load_file(file))
