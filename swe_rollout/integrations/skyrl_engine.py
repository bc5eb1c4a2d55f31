"""SkyRLEngine: samples from the inference engines that receive the weights of SkyRL's trainer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from swe_rollout.engine.base import GenerateRequest
from swe_rollout.integrations.adapter import TrainerEngine, generation_of
from swe_rollout.types.turn import Generation

if TYPE_CHECKING:
    from skyrl.backends.skyrl_train.inference_servers.base import InferenceEngineInterface


class SkyRLEngine(TrainerEngine):
    """A token engine over `InferenceEngineInterface.generate`.

    SkyRL does not say which weights sampled a token. A call during which `version` changes is
    marked with the version at its end.
    """

    def __init__(
        self,
        client: InferenceEngineInterface,
        tokenizer: str,
        *,
        context_tokens: int | None = None,
        version: Callable[[], str] | None = None,
    ) -> None:
        """Use a `tokenizer`, a folder or a name on the hub: that of `trainer.policy.model.path`."""
        super().__init__(tokenizer, context_tokens=context_tokens)
        self._client = client
        self._version = version

    def weight_version(self) -> str | None:
        return None if self._version is None else self._version()

    async def generate(self, request: GenerateRequest) -> Generation:
        sampling = request.sampling
        params = {
            "max_tokens": request.max_new_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "min_p": sampling.min_p,
            "logprobs": 0,
            "stop_token_ids": list(request.stop_token_ids),
            "skip_special_tokens": False,
            **({} if sampling.seed is None else {"seed": sampling.seed}),
        }
        answer = await self._client.generate(
            {
                "prompt_token_ids": [request.input_ids.tolist()],
                "sampling_params": params,
                "session_ids": [str(request.episode)],
            }
        )
        (ids,), logprobs = answer["response_ids"], answer["response_logprobs"]
        version = self.weight_version()
        versions = () if version is None else (version,) * len(ids)
        return generation_of(
            request, ids, logprobs and logprobs[0], answer["stop_reasons"][0], versions
        )
