"""Shared by the adapters: the error for a missing trainer, its engine, a sample's columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Self, TypeVar

from swe_rollout.engine.base import EngineInfo, GenerateRequest, TokenEngine
from swe_rollout.errors import EngineError, PrerequisiteError
from swe_rollout.training.samples import TrainingSample
from swe_rollout.types.turn import FinishReason, Generation, WeightSpan

T = TypeVar("T")
_FINISHED = {
    "stop": FinishReason.STOP,
    "tool_calls": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "abort": FinishReason.ABORT,
}


class TrainerMissingError(PrerequisiteError, ImportError):
    """The trainer that an adapter is for is not installed in this environment."""


@contextmanager
def needed(package: str) -> Iterator[None]:
    """Raise TrainerMissingError if the block imports this package and it is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise TrainerMissingError(
            f"this adapter needs the package {package}",
            why="it is not installed in this environment",
            fix=f"import it where {package} runs: install swe-rollout into that environment "
            f"(docs/how-to/{package}.md says which version of {package} fits)",
        ) from error


class TrainerEngine(TokenEngine):
    """A token engine over the engine of a trainer, which opens and closes it."""

    def __init__(self, tokenizer: str, *, context_tokens: int | None = None) -> None:
        """Use the `tokenizer` of the engine's model: a folder or a name on the hub."""
        self._tokenizer = tokenizer
        self._context_tokens = context_tokens

    def weight_version(self) -> str | None:
        """Return the version of the weights that sample now; None if it is unknown."""
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
    """Return the response to a request; `versions` names each token's weights, or is empty.

    Raises EngineError if it ended for an unknown reason; `engine.checked` checks the rest.
    """
    if finish_reason not in _FINISHED:
        raise EngineError(f"the engine ended a call with {finish_reason!r:.80}")
    spans: list[WeightSpan] = []
    for version, run in groupby(versions):
        start = spans[-1].end if spans else 0
        spans.append(WeightSpan(version, start, start + len(tuple(run))))
    return Generation(
        token_ids=tuple(token_ids),
        logprobs=() if logprobs is None else tuple(logprobs),
        finish_reason=_FINISHED[finish_reason],
        prompt_tokens=len(request.input_ids),
        cached_tokens=cached_tokens,
        weight_versions=tuple(spans),
    )


@dataclass(frozen=True, slots=True)
class Columns:
    """Prompt and response of a sample. All columns of the response have the same length."""

    prompt_ids: list[int]
    response_ids: list[int]
    """The response, with at least one token."""
    loss_mask: list[int]
    logprobs: list[float]
    """0.0 where the mask is 0."""

    @classmethod
    def of(cls, sample: TrainingSample, *, filler: int) -> Self:
        """Cut a sample after its last sampled token; trainers need nothing beyond it.

        Trainers index the last token of a response. If nothing was sampled, the prompt's last token
        takes its place, masked; if not even a prompt was rendered, `filler` does.
        """
        end = 1 + max((i for i, each in enumerate(sample.loss_mask) if each), default=-1)
        if end:
            return cls(
                list(sample.prompt_ids),
                list(sample.response_ids[:end]),
                list(sample.loss_mask[:end]),
                list(sample.logprobs[:end]),
            )
        whole = [*sample.prompt_ids] if len(sample.prompt_ids) > 1 else [filler, filler]
        return cls(whole[:-1], whole[-1:], [0], [0.0])

    @property
    def token_ids(self) -> list[int]:
        """Token ids of prompt and response."""
        return self.prompt_ids + self.response_ids

    def whole(self, column: Sequence[T], fill: T) -> list[T]:
        """Return a column of the response, preceded by `fill` for each token of the prompt."""
        return [*[fill] * len(self.prompt_ids), *column]


def runs(versions: Sequence[str | None]) -> list[str]:
    """Return the weight versions in the order in which they sampled, each run once."""
    found: list[str] = []
    for version in versions:
        if version is not None and version not in found[-1:]:
            found.append(version)
    return found
