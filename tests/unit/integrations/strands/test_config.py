"""The configuration of a model: nothing that is given is left out in silence."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from pydantic import BaseModel

from swe_rollout.errors import UsageError
from swe_rollout.integrations.strands.config import (
    SglangConfig,
    TurnSampling,
    check_config,
    constrained,
    read_object,
    read_sampling,
    recording_of,
)
from swe_rollout.integrations.strands.exceptions import SGLangDecodingError
from swe_rollout.spec.policy import Sampling
from swe_rollout.tokens.replay import ExpertShape, Recording
from unit.integrations.rollouts import RENDERER


def config(**values: Any) -> SglangConfig:
    return cast("SglangConfig", values)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, None),
        ({"return_routed_experts": None}, None),
        ({"return_prompt_logprobs": True}, Recording(prompt_logprobs=True)),
        ({"return_routed_experts": (4, 2)}, Recording(experts=ExpertShape(4, 2))),
        (
            {"return_routed_experts": (4, 2), "return_prompt_logprobs": True},
            Recording(experts=ExpertShape(4, 2), prompt_logprobs=True),
        ),
    ],
)
def test_what_is_recorded(values: dict[str, object], expected: Recording | None) -> None:
    assert recording_of(config(**values)) == expected


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"temperature": 1.0}, "no option 'temperature'"),
        ({"sampling_params": {"stop": ["x"]}}, "can't be made to stop"),
        ({"return_routed_experts": True}, "needs the shape"),
        ({"return_routed_experts": (4,)}, "needs the shape"),
    ],
)
def test_what_would_not_be_honoured_is_refused(values: dict[str, object], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        check_config(config(**values), RENDERER)


class Verdict(BaseModel):
    good: bool


def response(text: str, reason: str) -> dict[str, object]:
    return {"text": text, "meta_info": {"finish_reason": {"type": reason}}}


def test_sglang_is_given_the_schema_and_its_own_names() -> None:
    given = TurnSampling(Sampling(temperature=0.5, seed=3), 40)

    params = constrained(given, Verdict)

    schema = params["json_schema"]
    assert isinstance(schema, str)
    assert json.loads(schema) == Verdict.model_json_schema()
    assert (params["temperature"], params["max_new_tokens"]) == (0.5, 40)
    assert params["sampling_seed"] == 3
    assert "seed" not in params
    assert "sampling_seed" not in constrained(TurnSampling(Sampling(), 40), Verdict)


def test_an_object_is_one_that_ended_by_itself() -> None:
    assert read_object(response('{"good": true}', "stop"), Verdict) == Verdict(good=True)
    with pytest.raises(SGLangDecodingError, match="but by length"):
        read_object(response('{"good": true}', "length"), Verdict)
    with pytest.raises(SGLangDecodingError, match="not that of /generate"):
        read_object([], Verdict)


def test_the_parameters_of_sglang_are_read() -> None:
    sampling, limit = read_sampling(
        {
            "max_new_tokens": 7,
            "temperature": 0.5,
            "top_k": 3,
            "sampling_seed": 11,
            "min_p": None,
            "skip_special_tokens": True,
            "no_stop_trim": False,
            "stop": None,
            "stop_token_ids": [RENDERER.grammar.end_id],
        },
        RENDERER,
    )
    assert sampling == Sampling(temperature=0.5, top_k=3, seed=11)
    assert limit == 7


def test_what_is_not_given_samples_the_whole_distribution() -> None:
    assert read_sampling({}, RENDERER) == (Sampling(), 4096)


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"frequency_penalty": 0.1}, "frequency_penalty"),
        ({"json_schema": "{}"}, "json_schema"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"stop": ["\n"]}, "stop"),
        ({"stop_token_ids": [3]}, "stop at"),
        ({"stop_token_ids": "x"}, "stop_token_ids"),
    ],
)
def test_parameters_that_would_not_be_honoured_are_refused(
    params: dict[str, object], named: str
) -> None:
    with pytest.raises(UsageError, match=named):
        read_sampling(params, RENDERER)
