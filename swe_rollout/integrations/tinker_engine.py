"""TinkerEngine: samples from Tinker's service, to which the trainer saves its weights."""

from __future__ import annotations

from swe_rollout.engine.base import GenerateRequest
from swe_rollout.errors import UsageError
from swe_rollout.integrations.adapter import TrainerEngine, generation_of, needed
from swe_rollout.types.turn import Generation

with needed("tinker"):
    import tinker


class TinkerEngine(TrainerEngine):
    """A token engine over a `SamplingClient`.

    A sampling client has the weights of one step. `serve` switches to the next one: turns that are
    being sampled end with the old weights, and each token is recorded with its own version.
    """

    def __init__(
        self,
        client: tinker.SamplingClient,
        tokenizer: str,
        *,
        version: int = 0,
        context_tokens: int | None = None,
    ) -> None:
        """Use the `tokenizer` of the base model: a folder or a name on the hub."""
        super().__init__(tokenizer, context_tokens=context_tokens)
        self._served = (client, str(version))

    def serve(self, client: tinker.SamplingClient, version: int) -> None:
        """Sample from another client from now on."""
        self._served = (client, str(version))

    def weight_version(self) -> str:
        return self._served[1]

    async def generate(self, request: GenerateRequest) -> Generation:
        sampling, (client, version) = request.sampling, self._served
        drawn = (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p)
        if drawn != (1.0, 1.0, -1, 0.0):
            raise UsageError(
                f"Tinker trains on what was sampled at temperature 1, not at {drawn}",
                why="its losses compare with the logprobs of the model as it is",
                fix="remove spec.sampling",
            )
        answer = await client.sample(
            prompt=tinker.ModelInput.from_ints(request.input_ids.tolist()),
            num_samples=1,
            sampling_params=tinker.SamplingParams(
                max_tokens=request.max_new_tokens,
                seed=sampling.seed,
                stop=list(request.stop_token_ids),
                temperature=sampling.temperature,
            ),
        )
        (sequence,) = answer.sequences
        ids = sequence.tokens
        return generation_of(
            request, ids, sequence.logprobs, sequence.stop_reason, [version] * len(ids)
        )
