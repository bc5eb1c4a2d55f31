"""AReaL's adapter: its workflow, its engine as ours, and the tensors that it takes."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from swe_rollout.errors import UsageError
from swe_rollout.spec.policy import Sampling
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.turn import WeightSpan
from swe_rollout.types.verdict import Reward, RewardTerm
from unit.export.export_parts import branched, failed, trajectory
from unit.integrations.frameworks import TENSORS, ModelRequest, RolloutWorkflow, areal
from unit.integrations.test_adapter import REQUEST


@pytest.fixture
def adapted(monkeypatch: pytest.MonkeyPatch) -> Any:
    return areal(monkeypatch)


def test_it_is_a_workflow(adapted: Any) -> None:
    assert issubclass(adapted.SweWorkflow, RolloutWorkflow)


async def test_data_without_a_task_is_refused(adapted: Any) -> None:
    workflow = adapted.SweWorkflow(cast("Any", object()), tokenizer="tiny", column="task")
    with pytest.raises(UsageError, match="no column task"):
        await workflow.arun_episode(object(), {"instance_id": "a"})


class Inference:
    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []

    async def agenerate(self, request: ModelRequest) -> object:
        self.requests.append(request)
        return SimpleNamespace(
            output_tokens=[4, 5, 9],
            output_logprobs=[-0.5, -0.5, -0.25],
            output_versions=[3, 3, 4],
            stop_reason="stop",
        )

    def get_version(self) -> int:
        return 4


async def test_ids_go_in_and_come_out_with_a_version_each(adapted: Any) -> None:
    inference = Inference()

    found = await adapted.ArealEngine(inference, "tiny").generate(REQUEST)

    assert (found.token_ids, found.logprobs) == ((4, 5, 9), (-0.5, -0.5, -0.25))
    assert found.weight_versions == (WeightSpan("3", 0, 2), WeightSpan("4", 2, 3))
    (request,) = inference.requests
    assert (request.rid, request.input_ids) == ("job/task/0#0", [1, 2, 3])
    config = request.gconfig
    assert (config.n_samples, config.max_new_tokens, config.max_tokens) == (1, 8, 11)
    assert (config.top_k, config.greedy, config.stop_token_ids) == (100_000_000, False, [9])
    assert not config.skip_special_tokens


async def test_greedy_and_top_k_are_said_as_areal_says_them(adapted: Any) -> None:
    inference = Inference()
    sampling = Sampling(temperature=0, top_k=7)

    await adapted.ArealEngine(inference, "tiny").generate(replace(REQUEST, sampling=sampling))

    assert (inference.requests[0].gconfig.greedy, inference.requests[0].gconfig.top_k) == (True, 7)


async def test_what_areal_can_not_sample_is_refused(adapted: Any) -> None:
    with pytest.raises(UsageError, match="no min_p"):
        await adapted.ArealEngine(Inference(), "tiny").generate(
            replace(REQUEST, sampling=Sampling(min_p=0.1))
        )


async def test_it_says_what_it_serves(adapted: Any) -> None:
    info = await adapted.ArealEngine(Inference(), "tiny", context_tokens=9).info()

    assert (info.tokenizer, info.context_tokens, info.weight_version) == ("tiny", 9, "4")


def versioned(found: Trajectory, *, value: float = 1.0, version: str | None = "5") -> Trajectory:
    segments = tuple(replace(each, weight_version=version) for each in found.segments)
    branches = tuple(replace(each, segments=segments) for each in found.branches)
    reward = Reward((RewardTerm("resolved", value),))
    return replace(found, segments=segments, branches=branches, reward=reward)


def test_rows_are_branches_with_a_version_for_each_sampled_token(adapted: Any) -> None:
    found = adapted.tensors([versioned(branched())])

    assert found.keys() == TENSORS
    rows, width = found["input_ids"].shape
    assert (rows, width) == (2, 39)
    assert all(found[key].shape == (rows, width) for key in TENSORS - {"rewards"})
    mask = ([0] * 20 + [1, 1, 1, 1, 1, 0, 0] * 3)[:39]
    assert found["loss_mask"].tolist() == [mask] * 2
    assert found["versions"].tolist() == [[5 if each else -1 for each in mask]] * 2
    assert found["logprobs"].tolist() == [[-0.5 if each else 0.0 for each in mask]] * 2
    assert found["attention_mask"].all()
    assert found["rewards"].tolist() == [1.0, 1.0]
    assert [found[key].dtype for key in ("input_ids", "versions", "logprobs")] == [
        np.int32,
        np.int32,
        np.float32,
    ]


def test_a_row_ends_in_a_token_that_is_trained(adapted: Any) -> None:
    """AReaL puts the reward on the last token, and its GAE skips those that are not trained."""
    found = adapted.tensors([versioned(branched())])
    assert found["loss_mask"][:, -1].tolist() == [1, 1]


def test_shorter_rows_are_padded_and_masked(adapted: Any) -> None:
    whole = versioned(trajectory())
    short = replace(
        whole,
        token_ids=whole.token_ids[:25],
        loss_mask=whole.loss_mask[:25],
        logprobs=whole.logprobs[:25],
        segments=whole.segments[:2],
    )
    found = adapted.tensors([whole, short])

    assert found["attention_mask"].sum(axis=1).tolist() == [39, 25]
    assert not found["loss_mask"][1, 25:].any()
    assert set(found["versions"][1, 25:].tolist()) == {-1}


def test_a_group_counts_each_graded_episode_once(adapted: Any) -> None:
    found = adapted.tensors(
        [
            versioned(branched(), value=1.0),
            failed(trajectory()),
            versioned(trajectory(), value=0.0),
            versioned(trajectory(), value=0.0),
        ]
    )
    mean, deviation = 1 / 3, np.std([1.0, 0.0, 0.0], ddof=1)

    expected = [(each - mean) / deviation for each in (1.0, 1.0, 0.0, 0.0)]
    assert found["rewards"].tolist() == pytest.approx(expected, rel=1e-4)


def test_equal_rewards_are_no_signal_and_no_error(adapted: Any) -> None:
    found = adapted.tensors([versioned(trajectory()), versioned(trajectory())])
    assert found["rewards"].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("graded", [0, 1])
def test_a_group_without_a_baseline_is_rejected(adapted: Any, graded: int) -> None:
    group = [versioned(trajectory())] * graded + [failed(trajectory())] * 2
    assert adapted.tensors(group) is None


@pytest.mark.parametrize("version", [None, "default", "-1", "²"])
def test_weights_without_a_number_are_refused(adapted: Any, version: str | None) -> None:
    with pytest.raises(UsageError, match="weights without a number"):
        adapted.tensors([versioned(trajectory(), version=version)])
