from __future__ import annotations

import pytest

from swe_rollout.errors import UsageError
from swe_rollout.integrations.strands.config import read_sampling
from swe_rollout.spec.policy import Sampling
from trainers.strands.policies import renderer


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
            "stop_token_ids": [renderer().grammar.end_id],
        },
        renderer(),
    )
    assert sampling == Sampling(temperature=0.5, top_k=3, seed=11)
    assert limit == 7


def test_what_is_not_given_samples_the_whole_distribution() -> None:
    assert read_sampling({}, renderer()) == (Sampling(), 4096)


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
def test_what_would_not_be_honoured_is_refused(params: dict[str, object], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        read_sampling(params, renderer())
