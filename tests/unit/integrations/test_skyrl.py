"""SkyRL's generator: rows in order, one for each branch; failures are in no baseline."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from swe_rollout.errors import UsageError
from swe_rollout.spec.policy import Sampling
from swe_rollout.types.episode import StopReason
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.verdict import Reward, RewardTerm
from unit.export.export_parts import branched, failed, trajectory
from unit.integrations.frameworks import (
    GENERATOR_OUTPUT,
    GeneratorInterface,
    TrajectoryID,
    adapter,
)


@pytest.fixture
def skyrl(monkeypatch: pytest.MonkeyPatch) -> Any:
    names = {"GeneratorInterface": GeneratorInterface}
    return adapter("skyrl", monkeypatch, skyrl__train__generators__base=names)


def output(skyrl: Any, *played: tuple[str, int, Trajectory]) -> dict[str, Any]:
    found = [skyrl.Played(TrajectoryID(group, number), each) for group, number, each in played]
    rows: dict[str, Any] = skyrl.generator_output(found)
    assert rows.keys() <= GENERATOR_OUTPUT
    return rows


def scored(value: float) -> Trajectory:
    return replace(trajectory(), reward=Reward((RewardTerm("resolved", value),)))


def test_it_is_a_generator(skyrl: Any) -> None:
    assert issubclass(skyrl.SweGenerator, GeneratorInterface)


def test_a_row_is_a_branch_cut_behind_its_prompt(skyrl: Any) -> None:
    found = output(skyrl, ("a", 0, branched()), ("a", 1, scored(0.0)))

    assert found["prompt_token_ids"] == [list(range(100, 120))] * 3
    assert found["response_ids"] == [[7, 8, 9, 10, 11, 1, 2] * 3] * 3
    assert found["loss_masks"] == [[1, 1, 1, 1, 1, 0, 0] * 3] * 3
    assert found["rollout_logprobs"] == [[-0.5, -0.5, -0.5, -0.5, -0.5, 0.0, 0.0] * 3] * 3
    assert found["rewards"] == [1.0, 1.0, 0.0]
    assert found["is_last_step"] == [False, True, True]
    assert [each.repetition_id for each in found["trajectory_ids"]] == [0, 0, 1]
    assert found["trajectory_time_splits"] == {"llm": [3.0] * 3, "env": [9.0] * 3}


def test_a_failed_episode_has_no_rows_where_others_are_left(skyrl: Any) -> None:
    found = output(
        skyrl, ("a", 0, failed(trajectory())), ("a", 1, scored(0.0)), ("a", 2, scored(1.0))
    )

    assert [each.repetition_id for each in found["trajectory_ids"]] == [1, 2]
    assert all(map(any, found["loss_masks"]))
    assert found["rollout_metrics"] == {"generate/failed_episodes": 1}


def test_one_that_is_left_alone_has_no_baseline_and_is_not_trained(skyrl: Any) -> None:
    found = output(
        skyrl,
        *(("a", 0, scored(1.0)), ("a", 1, failed(trajectory()))),
        *(("b", 0, scored(1.0)), ("b", 1, scored(0.0))),
    )

    assert [any(mask) for mask in found["loss_masks"]] == [False, True, True]


def test_a_group_of_one_is_trained(skyrl: Any) -> None:
    assert any(output(skyrl, ("a", 0, scored(1.0)))["loss_masks"][0])


def test_a_lost_group_is_one_masked_row_that_has_a_token(skyrl: Any) -> None:
    empty = replace(
        failed(trajectory()), token_ids=(), loss_mask=(), logprobs=(), segments=(), turns=()
    )
    found = output(skyrl, ("a", 0, empty), ("a", 1, empty), ("b", 0, scored(1.0)))

    assert found["prompt_token_ids"][0] == [0]
    assert (found["response_ids"][0], found["loss_masks"][0]) == ([0], [0])
    assert (found["rollout_logprobs"][0], found["stop_reasons"][0]) == ([0.0], "error")
    assert [each.instance_id for each in found["trajectory_ids"]] == ["a", "b"]


def test_a_batch_without_a_grade_is_an_error_with_its_reason(skyrl: Any) -> None:
    lost = failed(trajectory())
    with pytest.raises(UsageError, match="none of 2 episodes was graded: lost"):
        output(skyrl, ("a", 0, lost), ("b", 0, lost))
    # The fully asynchronous trainer asks for one group at a time.
    assert not any(map(any, output(skyrl, ("a", 0, lost), ("a", 1, lost))["loss_masks"]))


def test_a_limit_is_a_truncated_episode(skyrl: Any) -> None:
    cut = replace(trajectory(), stop_reason=StopReason.TURN_LIMIT)
    assert output(skyrl, ("a", 0, cut))["stop_reasons"] == ["length"]


def test_sampling_is_what_skyrl_asks_for_and_otherwise_the_jobs(skyrl: Any) -> None:
    own = Sampling(temperature=0.5, top_k=7, seed=3)
    asked = {"temperature": 0.9, "top_p": 0.8, "max_tokens": 100, "min_p": None, "stop": ["x"]}

    assert skyrl.sampling_of(asked, own) == Sampling(temperature=0.9, top_p=0.8, top_k=7, seed=3)
    assert skyrl.sampling_of(None, own) == own
