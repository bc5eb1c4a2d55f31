"""Make the checkpoint whose context holds what any harness sends. Runs in the server's environment.

    tiny_long.py MODEL LONG

The same weights with a sharper attention, which is spread thin over prompts ten times as long as
those of the training: without it, calls lose their thread after the first brace. Its positions are
relative, so it needs no other ones.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from safetensors.torch import load_file, save_file

WEIGHTS, CONFIGURATION = "model.safetensors", "config.json"
CONTEXT_TOKENS = 65_536
SHARPER = 2.0
"""The factor of each query."""


def make(model: Path, long: Path) -> None:
    """Write the changed copy."""
    shutil.copytree(model, long)
    weights = load_file(model / WEIGHTS)
    for name, weight in weights.items():
        if name.endswith("q_norm.weight"):
            weight.mul_(SHARPER)
    save_file(weights, long / WEIGHTS, metadata={"format": "pt"})
    configuration = json.loads((model / CONFIGURATION).read_text())
    configuration["max_position_embeddings"] = CONTEXT_TOKENS
    (long / CONFIGURATION).write_text(json.dumps(configuration))


if __name__ == "__main__":
    make(Path(sys.argv[1]), Path(sys.argv[2]))
