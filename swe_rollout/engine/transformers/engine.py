"""TransformersEngine: sample from a model in this process.

For trials, tests and small models: `transformers.scheduler` runs each sequence alone, which costs
throughput and makes each logprob independent of the others. Large jobs use SGLang servers.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from swe_rollout.engine.base import EngineInfo, GenerateRequest, TokenEngine
from swe_rollout.engine.errors import BadRequestError, ContextOverflowError
from swe_rollout.engine.transformers.model import LocalModel
from swe_rollout.engine.transformers.scheduler import Call, GenerationScheduler
from swe_rollout.errors import UnreachableError
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.turn import Generation, WeightSpan


class TransformersEngine(TokenEngine):
    """Samples from one model in its own thread."""

    def __init__(
        self,
        model: LocalModel,
        *,
        cache_tokens: int,
        context_tokens: int | None = None,
        tokenizer: str | None = None,
    ) -> None:
        """Lower the model's own bound to `context_tokens`; `tokenizer` locates its tokenizer."""
        bounds = [each for each in (context_tokens, model.context_tokens) if each is not None]
        self._info = EngineInfo(
            model=model.name,
            context_tokens=min(bounds, default=None),
            vocab_size=model.vocab_size,
            weight_version=model.weight_version,
            tokenizer=tokenizer,
        )
        self._scheduler = GenerationScheduler(model.reader, cache_tokens=cache_tokens)

    async def info(self) -> EngineInfo:
        if not self._scheduler.is_alive:
            raise UnreachableError("the engine in this process has ended")
        return self._info

    async def generate(self, request: GenerateRequest) -> Generation:
        call = Call(self._clipped(request))
        self._scheduler.submit(call)
        try:
            sampled = await asyncio.wrap_future(call.outcome)
        finally:
            # This has no effect on a call that has ended.
            call.is_cancelled = True
        version = self._info.weight_version or ""
        return Generation(
            token_ids=sampled.ids,
            logprobs=sampled.logprobs,
            finish_reason=sampled.finish_reason,
            prompt_tokens=len(request.input_ids),
            cached_tokens=sampled.cached_tokens,
            weight_versions=(WeightSpan(version, 0, len(sampled.ids)),),
        )

    def release(self, episode: EpisodeId) -> None:
        self._scheduler.release(episode)

    async def aclose(self) -> None:
        await asyncio.to_thread(self._scheduler.close)

    def _clipped(self, request: GenerateRequest) -> GenerateRequest:
        """Check the ids, and limit the bound to what still fits into the context."""
        ids, vocab_size = request.input_ids.ids, self._info.vocab_size or 0
        if not len(ids):
            raise BadRequestError("a request has no input ids")
        if ids.min() < 0 or ids.max() >= vocab_size:
            raise BadRequestError(
                f"input ids range from {ids.min()} to {ids.max()}, outside [0, {vocab_size})",
                fix="check that the tokenizer is the model's own",
            )
        if self._info.context_tokens is None:
            return request
        room = self._info.context_tokens - len(ids)
        if room < 1:
            raise ContextOverflowError(
                f"{len(ids)} input tokens fill the context of {self._info.context_tokens}"
            )
        return replace(request, max_new_tokens=min(request.max_new_tokens, room))
