"""verl's own agent loop worker plays our loop: registration, padded tensors, the ratio test."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs scripts/trainers verl")
with warnings.catch_warnings():
    # verl's and ray's own, while they are imported.
    warnings.simplefilter("ignore")
    pytest.importorskip("verl", reason="needs scripts/trainers verl")
    from verl.experimental.agent_loop.agent_loop import AgentLoopWorker, _agent_loop_registry

    from trainers.verl.verl_parts import PROMPT, RESPONSE, Servers, batch_of, configuration

from pathlib import Path

from swe_rollout.integrations.verl import RolloutFailedError
from swe_rollout.launcher.sync import let_go
from swe_rollout.testing.ratio import RatioRow, check_ratio, forced
from swe_rollout.training.sample_bounds import FailureRateError
from trainers.tiny_model import TorchModel, save_model
from unit.integrations import rollouts
from unit.integrations.rollouts import (
    BROKEN,
    PARALLEL,
    SUBMIT,
    ask,
    encode,
    sandboxes,
    write_job,
)

pytestmark = [
    pytest.mark.trainers,
    pytest.mark.filterwarnings("default"),  # verl's and ray's own
]


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TorchModel]:
    folder = tmp_path_factory.mktemp("model")
    save_model(folder / "7", seed=1)
    save_model(folder / "8", seed=2)
    return {version: TorchModel(folder / version) for version in ("7", "8")}


@pytest.fixture(scope="session")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("checkpoint"), seed=1)


@pytest.fixture(autouse=True)
async def closed() -> Any:
    yield
    await let_go()


def worker_of(
    servers: Servers, model_path: Path, job: Path, monkeypatch: pytest.MonkeyPatch
) -> Any:
    """Return verl's worker, configured as a user does: by verl's own configuration."""
    monkeypatch.setenv("SWE_ROLLOUT_JOB", str(job))
    return AgentLoopWorker(configuration(model_path), servers)


def rows_of(batch: Any, servers: Servers) -> list[RatioRow]:
    """Read rows of the ratio test from verl's padded tensors alone."""
    found = []
    for index in range(len(batch)):
        tensors = {name: batch.batch[name][index].tolist() for name in (
            "prompts", "responses", "response_mask", "rollout_log_probs", "attention_mask",
            "input_ids")}  # fmt: skip
        attention = tensors["attention_mask"]
        assert tensors["input_ids"] == tensors["prompts"] + tensors["responses"]
        ids = [each for each, mask in zip(tensors["input_ids"], attention, strict=True) if mask]
        length = sum(attention[PROMPT:])
        assert attention[PROMPT:] == [1] * length + [0] * (RESPONSE - length)
        assert sum(tensors["response_mask"][length:]) == 0
        start = len(ids) - length
        mask = tensors["response_mask"][:length]
        found.append(
            RatioRow(
                ids,
                start,
                mask,
                tensors["rollout_log_probs"][:length],
                [0.8] * length,
                [
                    servers.sampled_by[hash(tuple(ids[: start + at + 1]))] if each else None
                    for at, each in enumerate(mask)
                ],
            )
        )
    return found


async def test_a_batch_of_episodes_has_verls_tensors_o4_o5_wf1(
    tmp_path: Path, models: dict[str, TorchModel], model_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Registered by its yaml; each row is its own sample, padded as verl pads."""
    servers = Servers(models)
    servers.main = [PARALLEL, BROKEN, SUBMIT]
    worker = worker_of(servers, model_path, write_job(tmp_path), monkeypatch)
    assert _agent_loop_registry["swe_rollout"]["_target_"].endswith("verl.SweRolloutLoop")

    batch = await worker.generate_sequences(batch_of("one", "two", "one"))

    assert batch.batch["prompts"].shape == (3, PROMPT)
    for name in ("responses", "response_mask", "rollout_log_probs"):
        assert batch.batch[name].shape == (3, RESPONSE)
    positions = batch.batch["position_ids"][0]
    assert positions[batch.batch["attention_mask"][0] == 1].tolist() == list(
        range(int(batch.batch["attention_mask"][0].sum()))
    )
    rewards = batch.batch["rm_scores"]
    assert rewards.sum(dim=-1).tolist() == pytest.approx([0.3] * 3)
    for row, reward in zip(rows_of(batch, servers), rewards, strict=True):
        assert reward.nonzero().tolist() == [[len(row.loss_mask) - 1]]
        assert sum(row.loss_mask) == sum(len(encode(t + "<|im_end|>")) for t in servers.main)
    prompts = [rollouts.RENDERER.decode(row.token_ids[: row.response_start])
               for row in rows_of(batch, servers)]  # fmt: skip
    assert ["one fails." in prompt for prompt in prompts] == [True, False, True]
    assert ["two fails." in prompt for prompt in prompts] == [False, True, False]
    other = batch.non_tensor_batch
    assert other["__num_turns__"].tolist() == [6, 6, 6]
    assert other["acc"].tolist() == [0.0] * 3
    assert len(set(other["episode"])) == 3
    assert {*other["min_global_steps"], *other["max_global_steps"]} <= {7, 8}
    assert other["turn_scores"].tolist() == other["tool_rewards"].tolist() == [[], [], []]
    metrics = batch.meta_info["metrics"]
    assert all(each["num_preempted"] == 3 for each in metrics)
    assert all(each["generate_sequences"] > 0 for each in metrics)
    # One request id for each episode keeps it at one replica.
    assert len({call["request_id"] for call in servers.calls}) == 3
    assert all(call["stop_token_ids"] and call["logprobs"] for call in servers.calls)


@pytest.mark.parametrize("abort_every", [None, 7])
async def test_the_ratio_is_1_on_every_trained_token_of_the_padded_tensors(
    tmp_path: Path,
    models: dict[str, TorchModel],
    model_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    abort_every: int | None,
) -> None:
    """Aborts with and without tokens, two weight versions, parallel calls, errors, cut turns."""
    servers = Servers(models, abort_every=abort_every)
    limits = {"turns": 12, "contextTokens": 8192, "maxNewTokens": 44, "cutTurns": "answer"}
    worker = worker_of(servers, model_path, write_job(tmp_path, limits=limits), monkeypatch)
    monkeypatch.setattr("swe_rollout.integrations.verl_engine._PAUSE_S", 0.01)

    batch = await worker.generate_sequences(batch_of("one", "two"))

    rows = rows_of(batch, servers)
    report = check_ratio(rows, forced(models)).require()
    assert report.tokens == sum(sum(row.loss_mask) for row in rows) > 250
    versions = {version for row in rows for version in row.weight_versions or () if version}
    assert versions == {"7", "8"}
    assert batch.non_tensor_batch["min_global_steps"].tolist() == [7, 7]
    assert batch.non_tensor_batch["max_global_steps"].tolist() == [8, 8]


async def test_the_v1_trainer_takes_branches_and_leaves_failures_out(
    tmp_path: Path, models: dict[str, TorchModel], model_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = Servers(models)
    servers.main = [ask("Look."), SUBMIT]
    servers.experts = True
    worker = worker_of(servers, model_path, write_job(tmp_path), monkeypatch)
    taken: list[Any] = []

    async def take(output: Any, validate: bool, **_: Any) -> None:  # noqa: FBT001 - verl's
        del validate
        taken.append(output)

    monkeypatch.setattr(worker, "_agent_loop_postprocess", take)

    async def play() -> Any:
        await worker._run_agent_loop(
            {"temperature": 0.8, "top_p": 1.0, "top_k": -1, "logprobs": True},
            {"step": 0, "sample_index": 0, "rollout_n": 0, "validate": False},
            agent_name="swe_rollout", session_id=0, uid="u", raw_prompt=[],
            extra_info={"instance_id": "one"},
        )  # fmt: skip
        return taken[-1]

    sub, main = await play()
    assert (sub.reward_score, main.reward_score) == (0.4, 0.4)
    assert (sub.num_turns, main.num_turns) == (4, 4)
    for output in (sub, main):
        fields = output.as_dict()
        length = len(output.prompt_ids) + len(output.response_ids)
        assert fields["routed_experts"].shape == (length, 2, 1)
        # Known rows stay as the weights chose them that sampled.
        assert fields["routed_experts"][0, 0, 0] < fields["routed_experts"][length - 2, 0, 0]
        assert fields["extra_fields"]["reward_extra_info"] == {"acc": 0.0}
        assert fields["rm_scores"][-1] == pytest.approx(0.4)
    sandboxes().refused = 3
    assert [await play() for _ in range(2)] == [[], []]
    with pytest.raises(FailureRateError, match="3 of the last 4 samples failed"):
        await play()


async def test_the_older_trainer_is_stopped_by_a_failure_and_never_given_a_reward(
    tmp_path: Path, models: dict[str, TorchModel], model_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = Servers(models)
    servers.main = [SUBMIT]
    worker = worker_of(servers, model_path, write_job(tmp_path), monkeypatch)
    await worker.generate_sequences(batch_of("one"))
    sandboxes().refused = 1
    with pytest.raises(RolloutFailedError, match="no sandbox for you") as raised:
        await worker.generate_sequences(batch_of("one"))
    assert "use_v1" in raised.value.fix
