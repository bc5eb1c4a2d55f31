"""TRL's own GRPOTrainer trains on our episodes: its tensors, its logprobs, its masks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Qwen3ForCausalLM
from trl import GRPOTrainer

from swe_rollout import RolloutJob
from swe_rollout.engine.base import GenerateRequest
from swe_rollout.errors import UsageError
from swe_rollout.integrations.trl import Rollouts
from swe_rollout.integrations.trl.columns import RolloutColumns
from swe_rollout.testing.ratio import RatioReport, RatioRow, check_ratio
from swe_rollout.training.sample_bounds import FailureRateError
from trainers.tiny_model import TorchModel, save_model
from trainers.trl.parts import grpo_trainer
from unit.integrations import rollouts as parts
from unit.integrations.rollouts import BROKEN, PARALLEL, SUBMIT, Policy, bash, sandboxes, write_job

pytestmark = [
    pytest.mark.trainers,
    pytest.mark.filterwarnings("default"),  # TRL's and transformers' own
]
MAIN = [PARALLEL, BROKEN, "On and on. " * 60, bash("ls"), SUBMIT]
LIMITS = {"turns": 12, "contextTokens": 8192, "maxNewTokens": 96, "cutTurns": "answer"}


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {name: save_model(folder / name, seed=int(name)) for name in ("7", "8")}


@pytest.fixture(scope="session")
def models(checkpoints: dict[str, Path]) -> dict[str, TorchModel]:
    return {name: TorchModel(folder) for name, folder in checkpoints.items()}


class Episodes(Policy):
    """Each episode has words of its own, so that its ids tell which weights sampled them."""

    def _script(self, request: GenerateRequest) -> list[int]:
        shared, name = self.plays, f"{request.episode.sample} of {request.episode.instance}"
        self.plays = {
            branch: [f"{name}: {text}" for text in texts] for branch, texts in shared.items()
        }
        try:
            return super()._script(request)
        finally:
            self.plays = shared


@dataclass
class Trained:
    """A trainer, and what its steps were given."""

    trainer: Any
    batches: list[dict[str, torch.Tensor]]
    columns: list[RolloutColumns]


@pytest.fixture
def make(
    tmp_path: Path, checkpoints: dict[str, Path], models: dict[str, TorchModel]
) -> Iterator[Callable[..., Trained]]:
    opened: list[Rollouts] = []

    def made(
        *,
        policy: Policy | None = None,
        change: Callable[[RolloutColumns], None] = lambda columns: None,  # noqa: ARG005
    ) -> Trained:
        engine = policy or Episodes({0: MAIN}, {"7": models["7"].decoded}, abort_every=7)
        path = write_job(tmp_path, limits=LIMITS)
        rollouts = Rollouts(RolloutJob.from_yaml(path), engine=engine)
        opened.append(rollouts)
        columns: list[RolloutColumns] = []

        def rollout_func(prompts: list[str], trainer: GRPOTrainer) -> RolloutColumns:
            found = rollouts(prompts, trainer)
            change(found)
            columns.append(found)
            return found

        trainer = grpo_trainer(
            tmp_path,
            checkpoints["7"],
            rollouts,
            rollout_func,
            per_device_train_batch_size=8,
            max_steps=1,
            learning_rate=1e-3,
            logging_steps=1,
        )
        batches: list[dict[str, torch.Tensor]] = []
        score = trainer._generate_and_score_completions

        def scored(inputs: Any) -> dict[str, torch.Tensor]:
            batches.append(score(inputs))
            return batches[-1]

        trainer._generate_and_score_completions = scored
        return Trained(trainer, batches, columns)

    yield made
    for each in opened:
        each.close()


@torch.no_grad()  # type: ignore[untyped-decorator, unused-ignore]
def ratios(trained: Trained, checkpoints: dict[str, Path], version_of: Any) -> RatioReport:
    """The trainer's logprobs, by its own method on its own tensors, against those sampled.

    Where two versions sampled, the trainer is given the weights of each.
    """
    trainer, (batch,) = trained.trainer, trained.batches
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
    found: dict[str, Any] = {}
    for name, folder in checkpoints.items():
        trainer.model.load_state_dict(Qwen3ForCausalLM.from_pretrained(folder).state_dict())
        read, _, _ = trainer._get_per_token_logps_and_entropies(
            trainer.model, ids, mask, batch["completion_ids"].size(1)
        )
        found[name] = read.double().numpy()
    rows = []
    for row in range(len(ids)):
        length = int(batch["completion_mask"][row].sum())
        prompt = ids[row, : batch["prompt_ids"].size(1)][batch["prompt_mask"][row].bool()].tolist()
        tokens = batch["completion_ids"][row, :length].tolist()
        trains = batch["tool_mask"][row, :length].tolist()
        versions = [
            version_of([*prompt, *tokens[: at + 1]]) if each else None
            for at, each in enumerate(trains)
        ]
        logprobs = batch["sampling_per_token_logps"][row, :length].tolist()
        rows.append(
            RatioRow([*prompt, *tokens], len(prompt), trains, logprobs, weight_versions=versions)
        )
    numbers = {id(row.token_ids): number for number, row in enumerate(rows)}

    def teacher(row: RatioRow) -> Any:
        number, versions = numbers[id(row.token_ids)], row.weight_versions or ()
        return np.array([found[v][number, at] if v else 0.0 for at, v in enumerate(versions)])

    return check_ratio(rows, teacher)


def test_every_trained_token_has_ratio_1(
    make: Callable[..., Trained], checkpoints: dict[str, Path], models: dict[str, TorchModel]
) -> None:
    """Episodes with aborts, parallel calls, a parse error, a cut turn and two weight versions."""
    policy = Episodes({0: MAIN}, {k: each.decoded for k, each in models.items()}, abort_every=7)
    trained = make(policy=policy)

    trained.trainer.train()

    report = ratios(trained, checkpoints, policy.version_of).require()
    sampled = sum(sum(mask) for mask in trained.columns[0]["env_mask"])
    assert report.tokens == sampled > 1000
    assert {policy.version_of(ids) for ids in _prefixes(trained)} == {"7", "8"}
    first = trained.batches[0]["sampling_per_token_logps"]
    assert torch.isfinite(first).all()


def _prefixes(trained: Trained) -> Iterator[list[int]]:
    columns = trained.columns[0]
    for prompt, tokens, mask in zip(
        columns["prompt_ids"], columns["completion_ids"], columns["env_mask"], strict=True
    ):
        for at, each in enumerate(mask):
            if each:
                yield [*prompt, *tokens[: at + 1]]


def _shift_logprobs(columns: RolloutColumns) -> None:
    columns["logprobs"] = [[0.0, *row[:-1]] for row in columns["logprobs"]]


def _train_everything(columns: RolloutColumns) -> None:
    columns["env_mask"] = [[1] * len(row) for row in columns["env_mask"]]


def _shift_mask(columns: RolloutColumns) -> None:
    columns["env_mask"] = [[0, *row[:-1]] for row in columns["env_mask"]]


def _move_boundary(columns: RolloutColumns) -> None:
    for prompt, tokens in zip(columns["prompt_ids"], columns["completion_ids"], strict=True):
        tokens.insert(0, prompt.pop())
    columns["completion_ids"] = [row[:-1] for row in columns["completion_ids"]]


def _drop_token(columns: RolloutColumns) -> None:
    columns["prompt_ids"] = [row[1:] for row in columns["prompt_ids"]]


@pytest.mark.parametrize(
    "change", [_shift_logprobs, _train_everything, _shift_mask, _move_boundary, _drop_token]
)
def test_the_ratio_test_sees_wrong_columns(
    make: Callable[..., Trained],
    checkpoints: dict[str, Path],
    change: Callable[[RolloutColumns], None],
) -> None:
    trained = make(change=change)

    trained.trainer.train()

    assert not ratios(trained, {"7": checkpoints["7"]}, lambda _: "7").passes


def test_a_sample_that_failed_is_replaced_and_the_rest_of_its_group_kept(
    make: Callable[..., Trained],
) -> None:
    trained = make()
    sandboxes().refused = 1

    trained.trainer.train()

    (columns,) = trained.columns
    assert None not in columns["reward"]
    assert len(set(columns["rollout_id"])) == 8


def test_a_row_that_failed_has_no_weight(make: Callable[..., Trained]) -> None:
    """Its reward enters no mean, and the others have the advantages of a group of three."""

    def fail(columns: RolloutColumns) -> None:
        columns["completion_ids"][1], columns["logprobs"][1] = [0], [0.0]
        columns["env_mask"][1], columns["reward"][1] = [0], None
        for index in (0, 2, 3):
            columns["reward"][index] = float(index)

    trained = make(change=fail)

    trained.trainer.train()

    (batch,) = trained.batches
    advantages = batch["advantages"].tolist()
    mean, std = 5 / 3, math.sqrt(((5 / 3) ** 2 + (1 / 3) ** 2 + (4 / 3) ** 2) / 2)
    expected = [(value - mean) / (std + 1e-4) for value in (0.0, 2.0, 3.0)]
    assert advantages[1] == 0.0
    assert [advantages[each] for each in (0, 2, 3)] == pytest.approx(expected, abs=1e-4)
    assert batch["tool_mask"][1, 0] == 0


def test_a_trainer_stops_when_too_many_samples_fail(make: Callable[..., Trained]) -> None:
    trained = make()
    sandboxes().refused = 10**6

    with pytest.raises(FailureRateError, match="sandbox"):
        trained.trainer.train()


def test_episodes_of_several_branches_are_refused(
    make: Callable[..., Trained], models: dict[str, TorchModel]
) -> None:
    plays = {0: [parts.ask("Look."), SUBMIT], 1: ["Found."]}
    trained = make(policy=Policy(plays, {"7": models["7"]}))

    with pytest.raises(UsageError, match="2 branches"):
        trained.trainer.train()
