"""Structured output: what SGLang is asked for, and what counts as an object."""

from __future__ import annotations

import json

import pytest
from pydantic import BaseModel

from swe_rollout.integrations.strands.config import TurnSampling, constrained, read_object
from swe_rollout.integrations.strands.exceptions import SGLangDecodingError
from swe_rollout.spec.policy import Sampling


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
