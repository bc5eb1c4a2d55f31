"""SkyRL's inference engines as a TokenEngine."""

from __future__ import annotations

from typing import Any, cast

from swe_rollout.integrations.skyrl_engine import SkyRLEngine
from swe_rollout.spec.policy import Sampling
from swe_rollout.types.turn import WeightSpan
from unit.integrations.test_adapter import REQUEST


class Client:
    """Answers as SkyRL 0.4.0's `RemoteInferenceClient.generate`."""

    def __init__(self) -> None:
        self.batches: list[dict[str, Any]] = []

    async def generate(self, input_batch: dict[str, Any]) -> dict[str, object]:
        self.batches.append(input_batch)
        return {
            "responses": ["x"],
            "response_ids": [[4, 9]],
            "response_logprobs": [[-0.5, -0.25]],
            "stop_reasons": ["stop"],
            "prompt_logprobs": None,
        }


async def test_ids_go_in_and_come_out_with_everything_said_explicitly() -> None:
    client = Client()
    engine = SkyRLEngine(cast("Any", client), "tiny", version=lambda: "7")

    found = await engine.generate(REQUEST)

    assert (found.token_ids, found.logprobs) == ((4, 9), (-0.5, -0.25))
    assert found.weight_versions == (WeightSpan("7", 0, 2),)
    (batch,) = client.batches
    assert batch["prompt_token_ids"] == [[1, 2, 3]]
    assert batch["session_ids"] == ["job/task/0"]
    params = batch["sampling_params"]
    assert (params["max_tokens"], params["stop_token_ids"], params["logprobs"]) == (8, [9], 0)
    assert not params["skip_special_tokens"]
    assert set(Sampling.model_fields) - {"seed"} <= set(params)
    assert "seed" not in params


async def test_it_says_what_it_serves() -> None:
    info = await SkyRLEngine(cast("Any", Client()), "tiny", context_tokens=9).info()

    assert (info.tokenizer, info.context_tokens, info.weight_version) == ("tiny", 9, None)
