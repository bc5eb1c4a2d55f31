"""TrainerEngine: the frame of an engine that a trainer owns. Its answers are not repaired."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from swe_rollout.engine.base import EngineInfo, GenerateRequest, TokenEngine
from swe_rollout.errors import EngineError
from swe_rollout.types.turn import FinishReason, Generation, WeightSpan

_FINISHED = {
    "stop": FinishReason.STOP,
    "tool_calls": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "abort": FinishReason.ABORT,
}


class TrainerEngine(TokenEngine):
    """Token ids in, sampled ids out, over the engine of a trainer, which opens and closes it."""

    def __init__(self, tokenizer: str, *, context_tokens: int | None = None) -> None:
        """`tokenizer` is that of the engine's model: a folder or a name on the hub."""
        self._tokenizer = tokenizer
        self._context_tokens = context_tokens

    def weight_version(self) -> str | None:
        """Return the version of the weights that sample now; None where nobody says it."""
        return None

    async def info(self) -> EngineInfo:
        return EngineInfo(
            model=self._tokenizer,
            context_tokens=self._context_tokens,
            vocab_size=None,
            weight_version=self.weight_version(),
            tokenizer=self._tokenizer,
        )

    async def aclose(self) -> None:
        """Do nothing: the trainer closes its engine."""


def generation_of(
    request: GenerateRequest,
    token_ids: Sequence[int],
    logprobs: Sequence[float] | None,
    finish_reason: str,
    versions: Sequence[str] = (),
    *,
    cached_tokens: int = 0,
) -> Generation:
    """Return the answer to a request; `versions` names the weights of each token, or is empty.

    Raises EngineError for one that can't be trained on, or whose end is not known.
    """
    if logprobs is None or len(logprobs) != len(token_ids):
        count = "none" if logprobs is None else len(logprobs)
        raise EngineError(
            f"the engine returned {len(token_ids)} ids and {count} logprobs",
            fix="let it return the logprob of each sampled id",
        )
    if finish_reason not in _FINISHED:
        raise EngineError(f"the engine ended a call with {finish_reason!r:.80}")
    spans: list[WeightSpan] = []
    for version, run in groupby(versions):
        start = spans[-1].end if spans else 0
        spans.append(WeightSpan(version, start, start + len(tuple(run))))
    return Generation(
        token_ids=tuple(token_ids),
        logprobs=tuple(logprobs),
        finish_reason=_FINISHED[finish_reason],
        prompt_tokens=len(request.input_ids),
        cached_tokens=cached_tokens,
        weight_versions=tuple(spans),
    )
