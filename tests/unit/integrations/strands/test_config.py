"""The configuration of a model: nothing that is given is left out in silence."""

from __future__ import annotations

from typing import Any, cast

import pytest

from swe_rollout.errors import UsageError
from swe_rollout.integrations.strands.config import SglangConfig, check_config, recording_of
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
