"""Tinker's sampling clients as a TokenEngine."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from swe_rollout.errors import UsageError
from swe_rollout.spec.policy import Sampling
from swe_rollout.types.turn import FinishReason, WeightSpan
from unit.integrations.frameworks import tinker
from unit.integrations.test_adapter import REQUEST


class Client:
    """Answers as tinker 0.38.0's `SamplingClient.sample`."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    async def sample(self, **call: object) -> object:
        self.calls.append(call)
        sequence = SimpleNamespace(tokens=[4, 5], logprobs=[-0.5, -0.25], stop_reason="length")
        return SimpleNamespace(sequences=[sequence])


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> Any:
    return tinker(monkeypatch, "tinker_engine")


async def test_ids_go_in_and_come_out_under_the_weights_that_are_served(engines: Any) -> None:
    first, second = Client(), Client()
    engine = engines.TinkerEngine(first, "tiny", version=1)

    found = [await engine.generate(REQUEST)]
    engine.serve(second, 2)
    found.append(await engine.generate(REQUEST))

    assert [each.weight_versions for each in found] == [
        (WeightSpan("1", 0, 2),),
        (WeightSpan("2", 0, 2),),
    ]
    assert (found[0].token_ids, found[0].logprobs) == ((4, 5), (-0.5, -0.25))
    assert found[0].finish_reason is FinishReason.LENGTH
    (call,) = first.calls
    assert (call["prompt"], call["num_samples"]) == ([1, 2, 3], 1)
    assert call["sampling_params"] == {
        "max_tokens": 8, "seed": None, "stop": [9], "temperature": 1.0,
    }  # fmt: skip
    assert (await engine.info()).weight_version == "2"


@pytest.mark.parametrize(
    "sampling", [Sampling(temperature=0.7), Sampling(top_p=0.9), Sampling(top_k=5)]
)
async def test_a_distribution_that_tinker_does_not_train_is_refused(
    engines: Any, sampling: Sampling
) -> None:
    with pytest.raises(UsageError, match="temperature 1"):
        await engines.TinkerEngine(Client(), "tiny").generate(replace(REQUEST, sampling=sampling))
