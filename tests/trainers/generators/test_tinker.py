"""Tinker: data of its own types, equal to what its cookbook makes of the same transitions."""

from __future__ import annotations

import pytest
import tinker
from tinker_cookbook.rl.data_processing import (
    assemble_training_data,
    compute_advantages,
    trajectory_to_data,
)

from swe_rollout.errors import UsageError
from swe_rollout.integrations.tinker import (
    cookbook_trajectory,
    datums,
    trajectory_group,
)
from swe_rollout.testing.ratio import RatioRow, check_ratio, forced
from trainers.generators.forced import ForcedPolicy
from trainers.generators.records import play

pytestmark = pytest.mark.trainers

TEMPERATURE = 0.8
COLUMNS = ("target_tokens", "logprobs", "advantages", "mask")


async def test_data_equal_those_of_the_cookbook(policy: ForcedPolicy) -> None:
    (record,) = await play(policy)

    found = datums(record, 0.75)

    expected = trajectory_to_data(cookbook_trajectory(record), 0.75, include_provenance=False)
    assert len(found) == len(expected) == 2, "a datum for each branch"
    for ours, theirs in zip(found, expected, strict=True):
        assert isinstance(ours, tinker.Datum)
        assert ours.model_input == theirs.model_input
        assert sorted(ours.loss_fn_inputs) == sorted(theirs.loss_fn_inputs) == sorted(COLUMNS)
        for column in COLUMNS:
            own, other = ours.loss_fn_inputs[column], theirs.loss_fn_inputs[column]
            assert (own.dtype, own.shape) == (other.dtype, other.shape)
            assert own.tolist() == other.tolist(), column


async def test_the_ratio_is_one_on_every_trained_token(policy: ForcedPolicy) -> None:
    rows = [
        ratio_row(each, policy)
        for record in await play(policy, samples=2)
        for each in datums(record, 1.0)
    ]

    report = check_ratio(rows, forced(policy.teacher())).require()

    assert report.tokens > 300


def ratio_row(found: tinker.Datum, policy: ForcedPolicy) -> RatioRow:
    """Read a datum as the service does: position i predicts target i."""
    targets, logprobs, mask = (
        found.loss_fn_inputs[name].tolist() for name in ("target_tokens", "logprobs", "mask")
    )
    inputs = found.model_input.to_ints()
    assert inputs[1:] == targets[:-1]
    ids = [inputs[0], *targets]
    trained = [int(each) for each in mask]
    temperatures = [TEMPERATURE] * len(trained)
    return RatioRow(ids, 1, trained, logprobs, temperatures, policy.versions(ids, 1, trained))


async def test_a_lost_episode_changes_no_advantage_of_the_others(policy: ForcedPolicy) -> None:
    records = await play(policy, samples=4, lost=1)

    group = trajectory_group(records)
    (advantages,) = compute_advantages([group])
    data, places = assemble_training_data([group], [advantages], include_provenance=False)

    assert group.get_total_rewards() == [0.0, 1.0, 0.0]
    assert advantages.tolist() == pytest.approx([-1 / 3, 2 / 3, -1 / 3])
    assert [each["traj_idx"] for each in places] == [0, 0, 1, 1, 2, 2]
    own = [d for r, a in zip(records[1:], advantages.tolist(), strict=True) for d in datums(r, a)]
    assert [d.loss_fn_inputs["advantages"].tolist() for d in own] == [
        d.loss_fn_inputs["advantages"].tolist() for d in data
    ]


async def test_a_group_without_a_grade_is_refused(policy: ForcedPolicy) -> None:
    (record,) = await play(policy, lost=1)
    with pytest.raises(UsageError, match="no episode of the group"):
        trajectory_group([record])
