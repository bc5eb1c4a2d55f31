"""A tiny random model in fp32, made in a moment: policy and trainer of the ratio tests."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM

from swe_rollout.testing.tiny import tokenizer_path
from unit.integrations.rollouts import RENDERER

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def save_model(folder: Path, *, seed: int) -> Path:
    """Write a model with the package's small tokenizer, and return its folder."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=RENDERER.vocab_size,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        # Random weights would give a distribution that is nearly uniform.
        initializer_range=0.3,
    )
    made: Any = Qwen3ForCausalLM(config)
    made.float().save_pretrained(folder)
    for file in Path(tokenizer_path()).iterdir():
        shutil.copy(file, folder)
    return folder


class TorchModel:
    """Reads ids at once, as a trainer does, or piece by piece with a cache, as an engine does."""

    def __init__(self, folder: Path) -> None:
        torch.set_num_threads(1)
        loaded: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self.model: Any = loaded.eval()

    @torch.no_grad()  # type: ignore[untyped-decorator, unused-ignore]
    def __call__(self, ids: Sequence[int], /, start: int = 0) -> NDArray[np.float32]:
        """Teacher-forced: one pass over all ids."""
        read = self.model(input_ids=torch.tensor([list(ids)])).logits[0, start:]
        rows: NDArray[np.float32] = read.float().numpy()
        return rows

    @torch.no_grad()  # type: ignore[untyped-decorator, unused-ignore]
    def decoded(self, ids: Sequence[int], /, start: int = 0) -> NDArray[np.float32]:
        """As an engine samples: the prompt in one pass, then one id at a time behind the cache."""
        prompt = self.model(input_ids=torch.tensor([list(ids[: start + 1])]), use_cache=True)
        rows, past = [prompt.logits[0, -1]], prompt.past_key_values
        for each in ids[start + 1 :]:
            step = self.model(input_ids=torch.tensor([[each]]), past_key_values=past)
            rows.append(step.logits[0, -1])
        found: NDArray[np.float32] = torch.stack(rows).float().numpy()
        return found
