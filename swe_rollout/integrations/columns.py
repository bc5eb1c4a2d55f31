"""The columns of a sample in the form that trainers take: a response that is never empty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeVar

import numpy as np

from swe_rollout.tokens.replay import RoutedExperts
from swe_rollout.training.samples import TrainingSample

if TYPE_CHECKING:
    from numpy.typing import NDArray


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Columns:
    """Prompt and response of one sample. The columns of the response are equally long."""

    prompt_ids: list[int]
    response_ids: list[int]
    """At least one token."""
    loss_mask: list[int]
    logprobs: list[float]
    """0.0 where the mask is 0."""

    @classmethod
    def of(cls, sample: TrainingSample, *, filler: int) -> Self:
        """Cut a sample behind its last sampled token, after which no trainer needs anything.

        Trainers index the last token of a response. Where nothing was sampled, the last token of
        the prompt stands in it, masked, and where not even a prompt was rendered, `filler` does.
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
        """Prompt and response."""
        return self.prompt_ids + self.response_ids

    def whole(self, column: Sequence[T], fill: T) -> list[T]:
        """Return a column of the response with `fill` for each token of the prompt before it."""
        return [*[fill] * len(self.prompt_ids), *column]

    def experts(self, rows: RoutedExperts | None, *, last: bool) -> NDArray[np.int32] | None:
        """Return the experts of its tokens, zeros where none are known, `[tokens, layers, topk]`.

        With `last` False the last token, which was never read, has no row.
        """
        if rows is None:
            return None
        length = len(self.prompt_ids) + len(self.response_ids) - (not last)
        known = rows.array()[:length]
        padding = ((0, length - len(known)), (0, 0), (0, 0))
        return np.pad(known, padding)


def runs(versions: Sequence[str | None]) -> list[str]:
    """Return the weight versions in the order in which they sampled, each run once."""
    found: list[str] = []
    for version in versions:
        if version is not None and version not in found[-1:]:
            found.append(version)
    return found
