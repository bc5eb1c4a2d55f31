"""What adapters share: a trainer that is missing, answers of its engine, columns of a sample."""

from __future__ import annotations

import importlib
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_rollout.engine.checked import Vocabulary, checked
from swe_rollout.errors import EngineError, PrerequisiteError
from swe_rollout.integrations.adapter import (
    Columns,
    TrainerMissingError,
    generation_of,
    needed,
    runs,
)
from swe_rollout.training.samples import SampleStatus, TrainingSample
from swe_rollout.types.turn import FinishReason
from unit.engine.engine_parts import request

ADAPTERS = ("verl", "skyrl", "areal", "tinker", "verifiers")


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> None:
    """No trainer can be imported, and no adapter is imported yet."""
    for name in list(sys.modules):
        if name.partition(".")[0] in ADAPTERS or name.startswith("swe_rollout.integrations."):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [_Absent(), *sys.meta_path])


class _Absent:
    """Finds no trainer, wherever one may be installed."""

    def find_spec(self, name: str, *_: object) -> None:
        if name.partition(".")[0] in ADAPTERS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@pytest.mark.parametrize("name", ADAPTERS)
@pytest.mark.usefixtures("without")
def test_an_adapter_without_its_trainer_names_it(name: str) -> None:
    with pytest.raises(ImportError) as caught:
        importlib.import_module(f"swe_rollout.integrations.{name}")

    error = caught.value
    assert isinstance(error, PrerequisiteError)
    assert error.exit_code == 3
    assert error.what == f"this adapter needs the package {name}"
    assert f"docs/how-to/{name}.md" in error.fix


def test_what_else_is_missing_is_not_the_trainer() -> None:
    with pytest.raises(ModuleNotFoundError) as caught, needed("verl"):
        importlib.import_module("swe_rollout.no_such_module")
    assert not isinstance(caught.value, TrainerMissingError)


REQUEST = request(max_new_tokens=8)


@pytest.mark.parametrize(
    ("finish", "expected"),
    [
        ("stop", FinishReason.STOP),
        ("tool_calls", FinishReason.STOP),
        ("length", FinishReason.LENGTH),
        ("abort", FinishReason.ABORT),
    ],
)
def test_an_answer_is_kept_as_it_is(finish: str, expected: FinishReason) -> None:
    found = generation_of(REQUEST, [4, 9], [-0.5, -0.25], finish, ["1", "2"])

    assert (found.token_ids, found.logprobs) == ((4, 9), (-0.5, -0.25))
    assert (found.finish_reason, found.prompt_tokens) == (expected, 3)


@given(st.lists(st.sampled_from(["1", "2", "3"])))
def test_versions_become_spans_without_gaps(versions: list[str]) -> None:
    count = len(versions)
    spans = generation_of(REQUEST, [4] * count, [0.0] * count, "stop", versions).weight_versions

    assert [s.version for s in spans for _ in range(s.start, s.end)] == versions
    assert all(a.version != b.version for a, b in pairwise(spans))


@pytest.mark.parametrize("logprobs", [None, [], [-0.5, -0.5]])
def test_ids_without_a_logprob_each_are_refused(logprobs: list[float] | None) -> None:
    with pytest.raises(EngineError, match="1 ids and"):
        checked(generation_of(REQUEST, [4], logprobs, "length"), REQUEST, Vocabulary(10, ()))


def test_an_end_that_is_not_known_is_refused() -> None:
    with pytest.raises(EngineError, match="'cosmic"):
        generation_of(REQUEST, [4], [0.0], "cosmic ray" * 1000)


def sample(prompt: list[int], mask: list[int]) -> TrainingSample:
    length = len(mask)
    return TrainingSample(
        rollout_id="job/task/0",
        group_id="job/task",
        branch=0,
        prompt_ids=tuple(prompt),
        response_ids=tuple(range(100, 100 + length)),
        loss_mask=tuple(mask),
        logprobs=tuple(-0.5 * each for each in mask),
        weight_versions=(None,) * length,
        temperatures=(1.0,) * length,
        reward=1.0,
        status=SampleStatus.COMPLETED,
        turns=1,
    )


@given(
    st.lists(st.integers(0, 50), max_size=5),
    st.lists(st.integers(0, 1), max_size=12),
)
def test_nothing_sampled_is_lost_and_no_response_is_empty(
    prompt: list[int], mask: list[int]
) -> None:
    made = sample(prompt if prompt or not any(mask) else [0], mask)
    columns = Columns.of(made, filler=9)

    assert len(columns.response_ids) == len(columns.loss_mask) == len(columns.logprobs) >= 1
    assert len(columns.prompt_ids) >= 1
    assert sum(columns.loss_mask) == sum(mask)
    if any(mask):
        assert columns.token_ids == list(made.token_ids[: len(columns.token_ids)])
        assert columns.loss_mask[-1] == 1
    else:
        assert columns.loss_mask == [0]
        assert columns.token_ids == (prompt if len(prompt) > 1 else [9, 9])


def test_versions_are_told_once_for_each_run() -> None:
    assert runs([None, "1", "1", None, "1", "2", "1"]) == ["1", "2", "1"]
