"""AReaL's inference engine as a TokenEngine."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from swe_rollout.errors import UsageError
from swe_rollout.spec.policy import Sampling
from swe_rollout.types.turn import WeightSpan
from unit.integrations.frameworks import ModelRequest, areal
from unit.integrations.test_engine_answer import REQUEST


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


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> Any:
    return areal(monkeypatch, "areal_engine")


async def test_ids_go_in_and_come_out_with_a_version_each(engines: Any) -> None:
    inference = Inference()

    found = await engines.ArealEngine(inference, "tiny").generate(REQUEST)

    assert (found.token_ids, found.logprobs) == ((4, 5, 9), (-0.5, -0.5, -0.25))
    assert found.weight_versions == (WeightSpan("3", 0, 2), WeightSpan("4", 2, 3))
    (request,) = inference.requests
    assert (request.rid, request.input_ids) == ("j/i/0#0", [1, 2, 3])
    config = request.gconfig
    assert (config.n_samples, config.max_new_tokens, config.max_tokens) == (1, 8, 11)
    assert (config.top_k, config.greedy, config.stop_token_ids) == (100_000_000, False, [9])
    assert not config.skip_special_tokens


async def test_greedy_and_top_k_are_said_as_areal_says_them(engines: Any) -> None:
    inference = Inference()
    sampling = Sampling(temperature=0, top_k=7)

    await engines.ArealEngine(inference, "tiny").generate(replace(REQUEST, sampling=sampling))

    assert (inference.requests[0].gconfig.greedy, inference.requests[0].gconfig.top_k) == (True, 7)


async def test_what_areal_can_not_sample_is_refused(engines: Any) -> None:
    with pytest.raises(UsageError, match="no min_p"):
        await engines.ArealEngine(Inference(), "tiny").generate(
            replace(REQUEST, sampling=Sampling(min_p=0.1))
        )


async def test_it_says_what_it_serves(engines: Any) -> None:
    info = await engines.ArealEngine(Inference(), "tiny", context_tokens=9).info()

    assert (info.tokenizer, info.context_tokens, info.weight_version) == ("tiny", 9, "4")
