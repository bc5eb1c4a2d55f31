"""TRL's own AsyncGRPOTrainer trains on our worker's rows, with weights sent as we send them."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import AttentionInterface, AutoModelForCausalLM

with warnings.catch_warnings():
    # TRL's own, while it is imported.
    warnings.simplefilter("ignore")
    from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer, async_grpo_trainer
    from trl.experimental.async_grpo.packing import TREE_ATTENTION

from swe_rollout import RolloutJob
from swe_rollout.errors import InternalError
from swe_rollout.integrations.trl import RolloutWorker
from swe_rollout.testing.ratio import RatioRow, check_ratio, forced
from swe_rollout.training.sample_bounds import FailureRateError
from trainers.tiny_model import TorchModel, save_model
from trainers.trl.parts import QUIET, Checkpoints, tree_attention
from unit.integrations.rollouts import BROKEN, PARALLEL, SUBMIT, Policy, ask, sandboxes, write_job

pytestmark = [
    pytest.mark.trainers,
    pytest.mark.filterwarnings("default"),  # TRL's and transformers' own
]
PLAYS = {0: [PARALLEL, ask("Look."), BROKEN, SUBMIT], 1: ["Found."]}


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {name: save_model(folder / name, seed=int(name)) for name in ("7", "8")}


@pytest.fixture
def make(tmp_path: Path, models: dict[str, Path]) -> Iterator[Callable[..., RolloutWorker]]:
    made: list[RolloutWorker] = []

    def worker(policy: Policy | None = None, parallelism: int = 4, **options: Any) -> RolloutWorker:
        engine = policy or Policy(PLAYS, {"7": TorchModel(models["7"]).decoded})
        job = RolloutJob.from_yaml(write_job(tmp_path, parallelism=parallelism))
        made.append(RolloutWorker(job, arguments(tmp_path, **options), engine=engine))
        return made[-1]

    yield worker
    for each in made:
        each.stop()


def arguments(folder: Path, **options: Any) -> AsyncGRPOConfig:
    return AsyncGRPOConfig(
        output_dir=str(folder / "out"),
        num_generations=4,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=1,
        temperature=0.8,
        logging_steps=1,
        **QUIET,
        **options,
    )


def taken(worker: RolloutWorker, rows: int) -> list[Any]:
    return [worker.rollout_buffer.get(timeout=60) for _ in range(rows)]


def test_each_branch_is_a_row_with_ratio_1(
    make: Callable[..., RolloutWorker], models: dict[str, Path]
) -> None:
    worker = make()
    worker.start()

    rows = taken(worker, 16)

    starts = [int(np.argmax(row.completion_mask)) for row in rows]
    read = forced({"7": TorchModel(models["7"])})
    check_ratio(
        [
            RatioRow(
                row.input_ids.tolist(),
                start,
                row.completion_mask[start:].tolist(),
                row.old_log_probs[start:].tolist(),
                temperatures=[0.8] * (len(row.input_ids) - start),
            )
            for row, start in zip(rows, starts, strict=True)
        ],
        read,
    ).require()
    groups: dict[int, list[Any]] = {}
    for row in rows:
        groups.setdefault(row.group_id, []).append(row)
    # Four episodes of two branches each; all earn the same, so none moves a weight.
    assert [len(group) for group in groups.values()] == [8, 8]
    assert {row.advantage for row in rows} == {0.0}
    assert {row.model_version for row in rows} == {7}
    assert {row.prompt[0]["role"] for row in rows} == {"system"}


def test_a_row_has_its_oldest_version(
    make: Callable[..., RolloutWorker], models: dict[str, Path]
) -> None:
    read = {name: TorchModel(folder).decoded for name, folder in models.items()}
    # One after the other: the weights change within each episode.
    worker = make(Policy({0: ["word " * 30, SUBMIT]}, read, abort_every=9), parallelism=1)
    worker.start()

    assert {row.model_version for row in taken(worker, 8)} == {7}


def test_a_full_buffer_holds_the_worker_back(make: Callable[..., RolloutWorker]) -> None:
    worker = make(queue_maxsize=3)
    worker.start()
    rows = taken(worker, 1)

    time.sleep(1)
    assert worker.rollout_buffer.qsize() <= 3
    worker.check_health(stale_after_s=0.9)
    assert len(rows + taken(worker, 20)) == 21


def test_too_many_failures_stop_the_trainer(make: Callable[..., RolloutWorker]) -> None:
    worker = make()
    worker.start()
    sandboxes().refused = 10**9

    assert worker._producing is not None
    assert isinstance(worker._producing.exception(timeout=60), FailureRateError)
    with pytest.raises(FailureRateError, match="sandbox"):
        worker.check_health(stale_after_s=60)


def test_a_worker_that_hangs_is_noticed(make: Callable[..., RolloutWorker]) -> None:
    worker = make(Policy(PLAYS, {}, pause_s=3600))
    worker.start()

    time.sleep(0.2)
    with pytest.raises(InternalError, match="no episode has ended"):
        worker.check_health(stale_after_s=0.1)


def test_the_trainer_trains_and_sends_its_weights(
    make: Callable[..., RolloutWorker],
    models: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The trainer's own ratio and KL of its first step, before it has changed anything."""
    # It asks a GPU for its speed, whether there is one or not.
    monkeypatch.setattr(async_grpo_trainer, "get_peak_flops_per_device", lambda *_: None)
    options = {"max_steps": 2, "token_budget": -1, "learning_rate": 1e-3, "weight_sync_steps": 1}
    worker = make(max_staleness=10, **options)
    weights = Checkpoints(models["7"], tmp_path / "sent")
    trainer = AsyncGRPOTrainer(
        model=str(models["7"]),
        args=arguments(tmp_path, max_staleness=10, **options),
        train_dataset=Dataset.from_list([{"prompt": "one"}, {"prompt": "two"}]),
        rollout_worker=worker,
        weight_transfer=weights,
    )
    AttentionInterface.register(TREE_ATTENTION, tree_attention)

    trainer.train()

    first = trainer.state.log_history[0]
    assert first["ratio"] == pytest.approx(1, abs=1e-3)
    assert first["kl"] < 1e-6
    assert weights.orders[:3] == ["pause", "send_weights", "resume"]
    assert weights.version == 3
    before = AutoModelForCausalLM.from_pretrained(models["7"], dtype=torch.float32).state_dict()
    name = "model.norm.weight"
    assert torch.equal(weights.loaded[0][name], before[name])
    assert not (tmp_path / "sent" / "version-3").exists()
