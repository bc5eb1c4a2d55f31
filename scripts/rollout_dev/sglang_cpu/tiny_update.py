"""Make the checkpoint that the CPU server is updated to. Runs in the server's environment.

    tiny_update.py MODEL UPDATE

The same shape and tokenizer with every weight changed a little and the logits flattened, as after
training steps: it still writes calls, but no token has the same probability as before, so a logprob
identifies the checkpoint.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

WEIGHTS = "model.safetensors"
NOISE = 0.03
"""The noise, as a share of each matrix's standard deviation."""
FLATTER = 0.8
"""The factor of the last norm; it changes the logprob even of a nearly certain token."""


def make(model: Path, update: Path) -> None:
    """Write the changed copy."""
    shutil.copytree(model, update)
    torch.manual_seed(1)
    weights = load_file(model / WEIGHTS)
    for weight in weights.values():
        if weight.dim() > 1:
            weight.add_(NOISE * weight.std() * torch.randn_like(weight))
    weights["model.norm.weight"].mul_(FLATTER)
    save_file(weights, update / WEIGHTS, metadata={"format": "pt"})


if __name__ == "__main__":
    make(Path(sys.argv[1]), Path(sys.argv[2]))
