"""Tinker's data: every column is cut one token behind the input."""

from __future__ import annotations

from typing import Any

import pytest

from swe_rollout.errors import UsageError
from swe_rollout.training.samples import training_samples
from unit.export.export_parts import branched, failed, forked, trajectory
from unit.integrations.frameworks import tinker


@pytest.fixture
def adapted(monkeypatch: pytest.MonkeyPatch) -> Any:
    return tinker(monkeypatch)


def test_position_i_predicts_token_i_plus_one(adapted: Any) -> None:
    record = trajectory()

    (found,) = adapted.datums(record, 0.25)

    ids, mask = list(record.token_ids), list(record.loss_mask)
    columns = {name: each.array.tolist() for name, each in found.loss_fn_inputs.items()}
    assert found.model_input == ids[:-1]
    assert columns == {
        "target_tokens": ids[1:],
        "mask": mask[1:],
        "logprobs": [-0.5 if each else 0.0 for each in mask[1:]],
        "advantages": [0.25 if each else 0.0 for each in mask[1:]],
    }


def test_the_service_gets_no_mask(adapted: Any) -> None:
    (found,) = adapted.datums(trajectory(), 0.25)
    sent = adapted.without_mask(found)
    assert sent.loss_fn_inputs.keys() == {"target_tokens", "logprobs", "advantages"}


def test_each_branch_is_a_datum_and_what_broke_is_none(adapted: Any) -> None:
    assert len(adapted.datums(branched(), 1.0)) == 2
    assert adapted.datums(failed(trajectory()), 1.0) == []
    with pytest.raises(UsageError, match="can't be trained on"):
        adapted.datum(training_samples(failed(trajectory()))[0], 1.0)


def test_what_a_fork_inherited_has_no_advantage(adapted: Any) -> None:
    record = forked()
    assert record.forked_from is not None
    (found,) = adapted.datums(record, 0.25)
    mask = found.loss_fn_inputs["mask"].array.tolist()
    start = record.forked_from.tokens - 1
    assert not any(mask[:start])
    assert mask[start:] == list(record.loss_mask[start + 1 :])
    (whole,) = adapted.datums(forked(trained=True), 0.25)
    assert whole.loss_fn_inputs["mask"].array.tolist() == list(record.loss_mask[1:])
    runs = list(adapted._sampled_runs(record.trained[0]))
    assert [start for start, _ in runs] == [turn.request.length for turn in record.turns[1:]]
