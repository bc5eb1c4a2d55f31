"""AReaL: its own executor's check over the tensors, its padding, and a version for each token."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType

import areal
import pytest
import torch
from areal.api import InferenceEngine, ModelRequest, ModelResponse, RolloutWorkflow
from areal.api.cli_args import InferenceEngineConfig, PPOActorConfig
from areal.infra.workflow_executor import WorkflowExecutor, check_trajectory_format
from areal.utils.data import concat_padded_tensors

from swe_rollout.errors import Boundary
from swe_rollout.integrations.areal import SweWorkflow
from swe_rollout.testing.ratio import RatioRow, check_ratio, forced
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.training.sample_bounds import FailureRateError
from trainers.generators.forced import ForcedPolicy
from trainers.generators.in_memory import InMemoryJob, in_memory_job

pytestmark = pytest.mark.trainers

TEMPERATURE = 0.6
KEYS = {"input_ids", "loss_mask", "logprobs", "versions", "attention_mask", "rewards"}
"""Those of AReaL's own workflows."""


class Engine(InferenceEngine):  # type: ignore[misc]
    """AReaL's engine over the forced policy: it hides aborts, and knows each token's version."""

    executor: WorkflowExecutor | None = None

    def __init__(self, policy: ForcedPolicy) -> None:
        self._policy = policy

    @property
    def workflow_executor(self) -> WorkflowExecutor:
        if self.executor is None:
            raise NotImplementedError
        return self.executor

    async def agenerate(self, req: ModelRequest) -> ModelResponse:
        config, ids = req.gconfig, list(req.input_ids)
        assert config.max_tokens == len(ids) + config.max_new_tokens
        response = ModelResponse(input_tokens=list(ids), stop_reason="abort")
        while response.stop_reason == "abort":
            said = self._policy.sample(
                ids,
                episode=req.rid,
                limit=config.max_new_tokens - len(response.output_tokens),
                temperature=config.temperature,
            )
            ids += said.ids
            response.output_tokens += said.ids
            response.output_logprobs += said.logprobs
            response.output_versions += map(int, said.versions)
            response.stop_reason = said.finish
        return response

    def get_version(self) -> int:
        return 4

    @property
    def initialized(self) -> bool:
        return True


def workflow(*, samples: int = 1, lost: Collection[tuple[str, int]] = ()) -> SweWorkflow:
    job = in_memory_job(temperature=TEMPERATURE, lost=lost)
    return SweWorkflow(job, tokenizer=str(tokenizer_path()), samples=samples)


async def play(
    policy: ForcedPolicy, *, samples: int = 1, lost: Collection[tuple[str, int]] = ()
) -> dict[str, torch.Tensor] | None:
    own = workflow(samples=samples, lost=lost)
    assert isinstance(own, RolloutWorkflow)
    try:
        found: dict[str, torch.Tensor] | None = await own.arun_episode(
            Engine(policy), {"instance_id": "task-a"}
        )
    finally:
        await own.aclose()
    return found


async def test_an_episode_passes_areals_check(policy: ForcedPolicy) -> None:
    found = await play(policy)

    assert found is not None
    assert check_trajectory_format(found, expected_keys=KEYS)
    rows, width = found["input_ids"].shape
    assert rows == 2, "the episode's own branch and its sub-agent's"
    assert found["rewards"].tolist() == [1.0, 1.0]
    assert all(found[key].shape == (rows, width) for key in KEYS - {"rewards"})
    sampled = found["loss_mask"] == 1
    assert set(found["versions"][sampled].tolist()) == {3, 4}
    assert set(found["versions"][~sampled].tolist()) == {-1}
    assert not found["logprobs"][~sampled].any()
    both = concat_padded_tensors([found, found])
    assert both["input_ids"].shape == (2 * rows, width)


async def test_areals_own_advantages_are_the_rewards_on_every_trained_token(
    policy: ForcedPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its GAE drops a reward that stands on a token that is not trained."""
    found = await play(policy, samples=2)
    assert found is not None
    # The package's __init__ imports its trainers, and with them trackers and CUDA kernels.
    package = ModuleType("areal.trainer")
    package.__path__ = [f"{areal.__path__[0]}/trainer"]
    monkeypatch.setitem(sys.modules, package.__name__, package)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PyTorch, at functions that AReaL compiles
        actors = import_module("areal.trainer.ppo.actor")
    config = PPOActorConfig(
        experiment_name="e", trial_name="t", reward_norm=None, adv_norm=None, kl_ctl=0.0
    )
    actor = actors.PPOActor(config, engine=None)

    data = {**found, "prox_logp": torch.zeros_like(found["logprobs"])}
    advantages = actor._compute_advantages(data)["advantages"]

    trained = torch.roll(found["loss_mask"], -1, dims=-1) == 1
    expected = found["rewards"][:, None].expand_as(advantages)
    torch.testing.assert_close(advantages[trained], expected[trained])
    assert found["rewards"].abs().min() > 0.5


async def test_the_ratio_is_one_on_every_trained_token(policy: ForcedPolicy) -> None:
    found = await play(policy, samples=2)
    assert found is not None
    rows = [ratio_row(found, row) for row in range(len(found["input_ids"]))]

    report = check_ratio(rows, forced(policy.teacher())).require()

    assert report.tokens == int(found["loss_mask"].sum()) > 300


def ratio_row(found: dict[str, torch.Tensor], row: int) -> RatioRow:
    """Read a row as AReaL does: everything behind the first id, by the attention mask."""
    length = int(found["attention_mask"][row].sum())
    ids, versions, mask, logprobs = (
        found[key][row, :length].tolist()
        for key in ("input_ids", "versions", "loss_mask", "logprobs")
    )
    return RatioRow(
        ids,
        1,
        mask[1:],
        logprobs[1:],
        [TEMPERATURE] * (length - 1),
        [None if each < 0 else str(each) for each in versions[1:]],
    )


@contextmanager
def executor_of(engine: Engine) -> Iterator[WorkflowExecutor]:
    """AReaL's own executor, with its threads."""
    # One step may take any number of groups, of which four are played at once.
    config = InferenceEngineConfig(
        consumer_batch_size=1, max_concurrent_rollouts=4, max_head_offpolicyness=10**6
    )
    executor = WorkflowExecutor(config, engine)
    engine.executor = executor
    executor.initialize(train_data_parallel_size=1)
    try:
        yield executor
    finally:
        executor.destroy()


def submitted(job: InMemoryJob, *, samples: int) -> SweWorkflow:
    """A workflow of its own for each submission, as AReaL makes one from its name."""
    return SweWorkflow(job, tokenizer=str(tokenizer_path()), samples=samples)


def test_workflows_of_one_engine_share_a_session_and_no_episode(policy: ForcedPolicy) -> None:
    job = in_memory_job(temperature=TEMPERATURE)
    engines = [Engine(policy), Engine(policy)]
    for engine in engines:
        with executor_of(engine) as executor:
            for _ in range(3):
                executor.submit({"instance_id": "task-a"}, submitted(job, samples=2))
            results = executor.wait(3, timeout=120)
        assert all(each is not None for each in results)

    assert job.opened == 2, "one for the trainer's engine, one for evaluation's"
    assert len({episode for episode, _ in policy.aborted}) == 2 * 3 * 2


def test_too_many_failures_stop_the_trainer_with_their_owner(policy: ForcedPolicy) -> None:
    """AReaL logs what a workflow raises, and would wait for others forever."""
    lost = [("task-a", each) for each in range(99)]
    job = in_memory_job(temperature=TEMPERATURE, lost=lost, max_failed_fraction=0.2)
    with executor_of(Engine(policy)) as executor:
        for _ in range(8):
            executor.submit({"instance_id": "task-a"}, submitted(job, samples=2))
        with pytest.raises(RuntimeError, match=r"of the last \d+ samples failed") as raised:
            executor.wait(8, timeout=120)
    assert isinstance(raised.value.__cause__, FailureRateError)
    assert list(raised.value.__cause__.owners) == [Boundary.SANDBOX]
