"""One process of a training that torchrun launched: `test_processes.py` runs two of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from trl import GRPOTrainer

from swe_rollout import RolloutJob
from swe_rollout.integrations.trl import Rollouts
from swe_rollout.integrations.trl.columns import RolloutColumns
from trainers.trl.parts import grpo_trainer
from unit.integrations.rollouts import SUBMIT, Policy, hashed_model


def main(folder: Path) -> None:
    """Train two steps, and write the ids of the episodes that this process played."""
    torch.set_num_threads(1)
    policy = Policy({0: [SUBMIT]}, {"7": hashed_model(1)})
    played: list[str] = []
    with Rollouts(RolloutJob.from_yaml(folder / "job.yaml"), engine=policy) as rollouts:

        def rollout_func(prompts: list[str], trainer: GRPOTrainer) -> RolloutColumns:
            found = rollouts(prompts, trainer)
            played.extend(found["rollout_id"])
            return found

        options = {"per_device_train_batch_size": 4, "max_steps": 2}
        trainer = grpo_trainer(folder, folder / "model", rollouts, rollout_func, **options)
        trainer.train()
    (folder / f"rank-{trainer.accelerator.process_index}.json").write_text(json.dumps(played))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
