"""The ratio test: do a trainer's columns match the distribution that its model sampled from?

The first update of on-policy training has an importance ratio of 1 on every trained token. So an
fp32 model scores the output of an adapter, and each ratio is compared with 1: a logprob of the next
token, a lost mask, or a prompt with the wrong end is far off. Pass the adapter's own columns, read
back from the trainer's tensors, not those of the record.

    rows = [RatioRow(sample.tokens, start, sample.loss_mask, sample.rollout_log_probs)]
    check_ratio(rows, forced({"default": logits_of_the_model})).require()

Framework-free: a model is a function from ids to logits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

MAX_ABS: Final = 1e-3
"""Maximum distance of a trained token's ratio from 1."""
MEAN_K3: Final = 1e-6
"""Maximum KL divergence by Schulman's k3 estimator, the mean of `r - 1 - log r`."""
_CHUNK: Final = 512
"""Number of positions whose float64 logits are in memory at once."""


@dataclass(frozen=True, slots=True)
class RatioRow:
    """One sequence as a trainer has it. The columns after `response_start` are the response's."""

    token_ids: Sequence[int]
    """Prompt and response, without padding, `[n]`."""
    response_start: int
    """Length of the prompt, at least 1 because nothing predicts the first id."""
    loss_mask: Sequence[int]
    """1 for each token of the response that is trained on."""
    logprobs: Sequence[float]
    """The sampled logprobs of the response in nats."""
    temperatures: Sequence[float] | None = None
    """The temperatures of the response, by default 1 everywhere; 0 scales like 1."""
    weight_versions: Sequence[str | None] | None = None
    """The weight version that sampled each token of the response; None if there is only one."""

    def __post_init__(self) -> None:
        """Raise ValueError for columns without the length of the response."""
        length = len(self.token_ids) - self.response_start
        columns = (self.loss_mask, self.logprobs, self.temperatures, self.weight_versions)
        lengths = [len(column) for column in columns if column is not None]
        if self.response_start < 1 or any(each != length for each in lengths):
            raise ValueError(
                f"a response of {length} tokens behind {self.response_start} has columns of "
                f"{', '.join(map(str, lengths))}"
            )


Logits: TypeAlias = "Callable[[Sequence[int]], NDArray[np.floating]]"
"""Maps ids `[n]` to the logits of the token after each of them, `[n, vocabulary]`."""
Teacher: TypeAlias = "Callable[[RatioRow], ArrayLike]"
"""Maps a row to the logprob of each id of its response given all ids before it, `[response]`."""


@dataclass(frozen=True, slots=True)
class RatioReport:
    """How far the ratios of the trained tokens are from 1."""

    tokens: int
    """Number of trained tokens in all rows."""
    max_abs: float
    """The largest |ratio - 1|; infinite if a logprob is not finite."""
    mean_k3: float
    worst: tuple[int, int] | None
    """The row, and the token of its response, with the largest; None if no token is trained."""

    @property
    def passes(self) -> bool:
        """Whether any token is trained, and none is off."""
        return self.tokens > 0 and self.max_abs < MAX_ABS and self.mean_k3 < MEAN_K3

    def require(self) -> RatioReport:
        """Return the report. Raises AssertionError if it does not pass."""
        if not self.passes:
            raise AssertionError(f"the ratio test fails: {self}")
        return self


def _distances(
    log_ratio: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return each ratio's distance from 1 and its k3; infinite if they can't be computed."""
    with np.errstate(over="ignore", invalid="ignore"):
        off = np.expm1(log_ratio)
        k3 = off - log_ratio
    return np.where(np.isfinite(off), np.abs(off), np.inf), np.where(np.isfinite(k3), k3, np.inf)


def check_ratio(samples: Iterable[RatioRow], teacher: Teacher) -> RatioReport:
    """Compare the logprob of every trained token of `samples` with the teacher's."""
    tokens, largest, total, worst = 0, 0.0, 0.0, None
    for index, row in enumerate(samples):
        (trained,) = np.nonzero(np.asarray(row.loss_mask))
        if not len(trained):
            continue
        recomputed = np.asarray(teacher(row), dtype=np.float64)
        if recomputed.shape != (len(row.loss_mask),):
            raise ValueError(f"the teacher returned {recomputed.shape} for {len(row.loss_mask)}")
        off, k3 = _distances((recomputed - np.asarray(row.logprobs, dtype=np.float64))[trained])
        tokens += len(trained)
        total += float(k3.sum())
        if worst is None or off.max() > largest:
            largest, worst = float(off.max()), (index, int(trained[off.argmax()]))
    return RatioReport(tokens, largest, total / tokens if tokens else 0.0, worst)


def forced(models: Mapping[str, Logits] | Mapping[str | None, Logits]) -> Teacher:
    """Return a teacher from models by weight version; a single model scores every token.

    The teacher raises KeyError for a trained token of an unknown version.
    """
    by_version: dict[str | None, Logits] = dict(models.items())

    def teach(row: RatioRow) -> NDArray[np.float64]:
        length = len(row.loss_mask)
        whole = np.full(length, np.nan)
        (trained,) = np.nonzero(np.asarray(row.loss_mask))
        versions = row.weight_versions if len(by_version) > 1 else None
        only = next(iter(by_version))
        read: dict[str | None, list[int]] = {}
        for position in trained.tolist():
            read.setdefault(only if versions is None else versions[position], []).append(position)
        for version, positions in read.items():
            logits = by_version[version](row.token_ids)
            for start in range(0, len(positions), _CHUNK):
                part = np.array(positions[start : start + _CHUNK])
                whole[part] = _logprobs(logits, row, part)
        return whole

    return teach


def _logprobs(
    logits: NDArray[np.floating], row: RatioRow, positions: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the logprobs of the response's ids at `positions`."""
    absolute = positions + row.response_start
    scaled = logits[absolute - 1].astype(np.float64)
    if row.temperatures is not None:
        scaled /= np.array([row.temperatures[each] or 1.0 for each in positions])[:, None]
    scaled -= scaled.max(axis=1, keepdims=True)
    ids = np.array([row.token_ids[each] for each in absolute])
    chosen: NDArray[np.float64] = scaled[np.arange(len(ids)), ids]
    normalizers: NDArray[np.float64] = np.log(np.exp(scaled).sum(axis=1))
    return chosen - normalizers
