"""Answers of trainers' own engines: exactly what was sampled, or an error."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_rollout.errors import EngineError
from swe_rollout.integrations.engine_answer import generation_of
from swe_rollout.types.turn import FinishReason
from unit.engine.engine_parts import request

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
        generation_of(REQUEST, [4], logprobs, "stop")


def test_an_end_that_is_not_known_is_refused() -> None:
    with pytest.raises(EngineError, match="'cosmic"):
        generation_of(REQUEST, [4], [0.0], "cosmic ray" * 1000)
