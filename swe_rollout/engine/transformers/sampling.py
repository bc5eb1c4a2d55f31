"""Draw one token from logits, with the logprob that records promise. Numpy alone, no torch.

The logprob of a token is `log_softmax(logits / temperature)`, over the whole vocabulary: `topK`,
`topP` and `minP` restrict what may be drawn and leave it as it is. At temperature 0 logits are not
scaled. SGLang reports the same number, so records of both engines are comparable.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from swe_rollout.spec.policy import Sampling

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WORD: Final = 2**64


class LogitsError(ValueError):
    """The logits are no distribution: some are NaN or infinite, or all are minus infinity."""


@dataclass(frozen=True, slots=True)
class Draw:
    """A sampled id and its logprob, in nats."""

    token_id: int
    logprob: float


class TokenSampler:
    """Draws the tokens of one call."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        # Without a seed of the job's, a call is repeatable by nobody.
        self._seed = secrets.randbits(64) if sampling.seed is None else sampling.seed % _WORD

    def draw(self, logits: NDArray[np.float32], position: int) -> Draw:
        """Draw the id at `position` of its sequence, from logits `[vocabulary]`.

        With a seed, the draw depends on seed, position and logits alone: a turn that is continued
        after an abort goes on as it would have. Raises LogitsError.
        """
        logprobs = log_softmax(logits, self._sampling.temperature)
        if self._sampling.temperature == 0:
            chosen = int(np.argmax(logits))
        else:
            ids = self._allowed(logprobs)
            weights = logprobs if ids is None else logprobs[ids]
            index = _choose(np.exp(weights), self._uniform(position))
            chosen = index if ids is None else int(ids[index])
        return Draw(chosen, float(logprobs[chosen]))

    def _allowed(self, logprobs: NDArray[np.float64]) -> NDArray[np.int64] | None:
        """Return the ids that may be drawn, the most likely first; None: all of them."""
        top_k, top_p, min_p = self._sampling.top_k, self._sampling.top_p, self._sampling.min_p
        is_cut = 0 < top_k < len(logprobs)
        if not is_cut and top_p == 1 and min_p == 0:
            return None
        ids = np.argpartition(-logprobs, top_k - 1)[:top_k] if is_cut else np.arange(len(logprobs))
        ids = ids[np.argsort(-logprobs[ids], kind="stable")]
        probabilities = np.exp(logprobs[ids])
        before = np.cumsum(probabilities) - probabilities
        keep = (before <= top_p) & (probabilities >= min_p * probabilities[0])
        keep[0] = True
        kept: NDArray[np.int64] = ids[keep]
        return kept

    def _uniform(self, position: int) -> float:
        key = np.array([self._seed, position], dtype=np.uint64)
        return float(np.random.Generator(np.random.Philox(key=key)).random())


def log_softmax(logits: NDArray[np.float32], temperature: float) -> NDArray[np.float64]:
    """Return the logprob of every id at a temperature, float64; 0 scales as 1 does.

    Raises LogitsError.
    """
    highest = logits.max(initial=-np.inf)
    if not np.isfinite(highest):
        raise LogitsError("the model's logits are NaN or infinite")
    # The highest is taken off first: no temperature is too low for the division.
    shifted = logits.astype(np.float64) - float(highest)
    with np.errstate(over="ignore"):
        scaled = shifted / (temperature or 1.0)
    whole: NDArray[np.float64] = scaled - np.log(np.exp(scaled).sum())
    return whole


def _choose(probabilities: NDArray[np.float64], uniform: float) -> int:
    """Return the index at this share, in [0, 1), of the total; never one of probability 0."""
    sums = np.cumsum(probabilities)
    share = min(uniform * sums[-1], np.nextafter(sums[-1], 0.0))
    return int(np.searchsorted(sums, share, side="right"))
