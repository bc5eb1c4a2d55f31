"""The proof that it learns: a tiny policy improves by GRPO on real episodes. See README.md.

    make learn             # three seeds; SEEDS=0 for one
    make learn-cluster     # one, shorter, in pods on the dev cluster

SGLang serves the policy on the CPU, each episode works in a sandbox and is graded in another by
hidden tests, TRL trains, and the new weights go to the running server before the next episodes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

# Threads that wait for each other in a busy loop take the server's time.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))

import policy  # noqa: E402
import torch  # noqa: E402
from datasets import Dataset  # noqa: E402
from report import Seed, Step, report  # noqa: E402
from tasks import is_held_out, tasks  # noqa: E402
from transformers import AutoTokenizer, Qwen3ForCausalLM, TrainerCallback  # noqa: E402
from trl import GRPOConfig, GRPOTrainer  # noqa: E402

from swe_rollout import RolloutJob  # noqa: E402
from swe_rollout.integrations.trl import Rollouts, SglangWeights, graded_reward  # noqa: E402

TASKS_PER_STEP, GROUP = 12, 8
MAX_STEPS = 100
SOLVED = 0.95
"""Training ends when this share of the last steps' episodes is solved."""
LAST_STEPS = 5
LONGEST_S = 27 * 60.0
"""Of one training, solved or not."""
EVALUATED = 4
"""Episodes of each task, before and after."""


class Curve(TrainerCallback):
    """Keeps the solve rate of each step, and ends the training when the tasks are solved."""

    def __init__(self, seed: Seed) -> None:
        self._seed = seed
        self._began = time.monotonic()

    def on_log(self, _args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if not logs or "reward" not in logs:
            return
        step = Step(
            step=state.global_step,
            solved=logs["reward"],
            seconds=round(time.monotonic() - self._began, 1),
            kl=round(logs["kl"], 4),
        )
        self._seed.steps.append(step)
        print(f"seed {self._seed.seed}: {json.dumps(asdict(step))}", file=sys.stderr, flush=True)
        last = [each.solved for each in self._seed.steps[-LAST_STEPS:]]
        is_solved = len(last) == LAST_STEPS and sum(last) / LAST_STEPS >= SOLVED
        if is_solved or step.seconds > LONGEST_S:
            control.should_training_stop = True


def learn(seed: int, folder: Path, steps: int, overrides: list[str]) -> Seed:
    """Make the base policy of a seed, serve it, train it; return what happened."""
    base, state = folder / "base", folder / "server"
    result = Seed(seed)
    job = RolloutJob.from_yaml(HERE / "job.yaml", overrides=overrides)
    if not (base / "model.safetensors").exists():
        result.pretrain_s = policy.make(job, list(tasks()), base, seed=seed)
    url = sglang("up", "--state", state, "--", "--model-path", base)
    try:
        job = RolloutJob.from_yaml(
            HERE / "job.yaml", overrides=[*overrides, f"spec.policy.sglang.url={url}"]
        )
        with Rollouts(job, weights=SglangWeights([url], config=base)) as rollouts:
            result.before = evaluate(rollouts)
            began = time.monotonic()
            train(rollouts, base, folder, result, steps)
            result.train_s = round(time.monotonic() - began, 1)
            result.after = evaluate(rollouts)
    finally:
        sglang("down", "--state", state)
    return result


def train(rollouts: Rollouts, base: Path, folder: Path, result: Seed, steps: int) -> None:
    """Train the policy by GRPO."""
    args = GRPOConfig(
        output_dir=str(folder / "trainer"),
        seed=result.seed,
        max_steps=steps,
        per_device_train_batch_size=TASKS_PER_STEP * GROUP,
        num_generations=GROUP,
        learning_rate=1e-3,
        lr_scheduler_type="constant",
        # Gradients are tiny here; Adam would make noise as large as the signal.
        adam_epsilon=1e-4,
        max_grad_norm=0.05,
        # Keeps a task that was never solved from settling on one wrong edit.
        beta=0.1,
        temperature=0.6,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        disable_tqdm=True,
    )
    rows = [row for row in rollouts.rows() if not is_held_out(row["prompt"])]
    trainer = GRPOTrainer(
        model=Qwen3ForCausalLM.from_pretrained(base, dtype=torch.float32),
        args=args,
        train_dataset=Dataset.from_list(rows),
        processing_class=AutoTokenizer.from_pretrained(base),
        reward_funcs=graded_reward,
        rollout_func=rollouts,
        callbacks=[Curve(result)],
    )
    trainer.train()
    rollouts.send_weights(trainer)


def evaluate(rollouts: Rollouts) -> dict[str, float]:
    """Return the solve rates of the tasks that are trained on, and of those that are held out."""

    async def play() -> list[tuple[bool, bool]]:
        names = [row["prompt"] for row in rollouts.rows() for _ in range(EVALUATED)]
        played = await asyncio.gather(*(rollouts.session.run_episode(name) for name in names))
        return [(is_held_out(each.episode.instance), each.resolved) for each in played]

    found = rollouts.run(play())
    rates = {}
    for name, wanted in (("trained", False), ("held_out", True)):
        solved = [resolved for held_out, resolved in found if held_out == wanted]
        rates[name] = sum(solved) / len(solved)
    return rates


def sglang(*arguments: str | Path) -> str:
    """Run `scripts/sglang-cpu` and return its output."""
    done = subprocess.run(
        [ROOT / "scripts" / "sglang-cpu", *arguments], check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout.strip()


def main() -> None:
    """Learn with each seed that has no result yet; print a summary, and make plot and table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "learn")
    parser.add_argument("--steps", type=int, default=MAX_STEPS, help="at most, for each seed")
    parser.add_argument("--override", action="append", default=[], help="of the job: a.b=c")
    options = parser.parse_args()
    torch.set_num_threads(2)
    results = []
    for seed in map(int, options.seeds.split(",")):
        folder = options.folder / f"seed-{seed}"
        kept = folder / "result.json"
        if not kept.exists():
            result = learn(seed, folder, options.steps, options.override)
            kept.write_text(json.dumps(asdict(result)))
        results.append(Seed.read(kept))
    print(json.dumps(report(results, options.folder)))


if __name__ == "__main__":
    main()
