"""ArealEngine: samples from AReaL's inference engine, which goes on when weights are updated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from swe_rollout.engine.base import GenerateRequest
from swe_rollout.errors import UsageError
from swe_rollout.integrations.engine_answer import TrainerEngine, generation_of
from swe_rollout.integrations.needed import needed
from swe_rollout.types.turn import Generation

with needed("areal"):
    from areal.api import ModelRequest
    from areal.api.cli_args import GenerationHyperparameters

if TYPE_CHECKING:
    from areal.api import InferenceEngine

_ALL = 100_000_000
"""AReaL's `top_k` for the whole vocabulary."""


class ArealEngine(TrainerEngine):
    """Token ids in, sampled ids out, over `InferenceEngine.agenerate`: a version for each token."""

    def __init__(
        self, engine: InferenceEngine, tokenizer: str, *, context_tokens: int | None = None
    ) -> None:
        """`tokenizer` is a folder or a name on the hub."""
        super().__init__(tokenizer, context_tokens=context_tokens)
        self._engine = engine

    def weight_version(self) -> str:
        return str(self._engine.get_version())

    async def generate(self, request: GenerateRequest) -> Generation:
        sampling = request.sampling
        if sampling.min_p:
            raise UsageError("AReaL has no min_p", fix="remove spec.sampling.minP")
        ids = request.input_ids.tolist()
        parameters = GenerationHyperparameters(
            n_samples=1,
            max_new_tokens=request.max_new_tokens,
            max_tokens=len(ids) + request.max_new_tokens,
            greedy=sampling.temperature == 0,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k if sampling.top_k > 0 else _ALL,
            stop_token_ids=list(request.stop_token_ids),
            skip_special_tokens=False,
        )
        # Calls with one id go to one server, whose prefix cache holds the branch.
        name = f"{request.episode}#{request.branch}"
        answer = await self._engine.agenerate(
            ModelRequest(rid=name, input_ids=ids, gconfig=parameters)
        )
        return generation_of(
            request,
            answer.output_tokens,
            answer.output_logprobs,
            answer.stop_reason,
            [str(version) for version in answer.output_versions],
        )
