"""Replay: optional data, besides ids and logprobs, with which a trainer can replay the sampling.

It contains routed experts (which experts of a mixture saw each token), the sampling mask (which ids
top-k and top-p kept at each step), and the logprobs of tokens that the harness wrote. Each is
aligned with a `TokenLog`; the rows of every response are appended in O(new rows).
"""

from __future__ import annotations

import base64
import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from swe_rollout.errors import InternalError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class ExpertShape:
    """Number of experts the model reports per token."""

    layers: int
    topk: int


@dataclass(frozen=True, slots=True)
class Recording:
    """The replay data a job records."""

    experts: ExpertShape | None = None
    sampling_mask: bool = False
    prompt_logprobs: bool = False


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """The replay data to request in one call, and from which position on."""

    experts: ExpertShape | None = None
    experts_from: int = 0
    """Number of positions whose experts are already known."""
    sampling_mask: bool = False
    prompt_logprobs_from: int | None = None
    """First input position whose logprob to return: the start of the last delta. Never 0, which
    would bypass the engine's prefix cache."""


@dataclass(frozen=True, slots=True)
class ReplayRows:
    """Replay data from one response."""

    experts: NDArray[np.int32] | None = field(default=None, compare=False)
    """int32 `[prompt + output - 1 - experts_from, layers, topk]`."""
    kept_ids: tuple[tuple[int, ...], ...] = ()
    """For each output id, the ids among which it was sampled."""
    kept_logprobs: tuple[float, ...] = ()
    """For each output id, its logprob among the kept ids."""
    prompt_logprobs: tuple[float | None, ...] = ()
    """Logprobs of the input positions from `prompt_logprobs_from` on."""


@dataclass(frozen=True, slots=True)
class RoutedExperts:
    """The stored form: row i has the experts chosen for token i; there is one row less than ids.

    `numpy.frombuffer(base64.b64decode(data), dtype).reshape(rows, layers, topk)`.
    """

    rows: int
    layers: int
    topk: int
    dtype: str
    """`uint8`, or `<i2` or `<i4` for more experts."""
    data: str

    def array(self) -> NDArray[np.int32]:
        """Return the decoded experts, int32 `[rows, layers, topk]`."""
        import numpy as np  # noqa: PLC0415

        flat = np.frombuffer(base64.b64decode(self.data), dtype=self.dtype)
        return flat.astype(np.int32).reshape(self.rows, self.layers, self.topk)


@dataclass(frozen=True, slots=True)
class SamplingMask:
    """The stored form: `ids[offsets[k]:offsets[k + 1]]` are kept for the k-th sampled token."""

    ids: tuple[int, ...]
    offsets: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Logprob of each sampled token among the ids kept for it."""


class Replay:
    """Replay data of a log."""

    __slots__ = ("_experts", "_kept", "_kept_logprobs", "_offsets", "_prompt_logprobs", "_rows")

    def __init__(self) -> None:
        self._experts: list[NDArray[np.int32]] = []
        self._rows = 0
        self._kept = array("i")
        self._offsets = array("i", [0])
        self._kept_logprobs = array("f")
        self._prompt_logprobs = array("f")

    @property
    def expert_rows(self) -> int:
        """Number of positions whose experts are known."""
        return self._rows

    @property
    def prompt_positions(self) -> int:
        """Position up to which logprobs of the harness's tokens are known."""
        return len(self._prompt_logprobs)

    def add(self, rows: ReplayRows, *, prompt_logprobs_from: int | None) -> None:
        """Append the data of one response. Raises InternalError if it overlaps the known data."""
        if rows.experts is not None:
            self._experts.append(rows.experts)
            self._rows += len(rows.experts)
        for kept in rows.kept_ids:
            self._kept.extend(kept)
            self._offsets.append(len(self._kept))
        self._kept_logprobs.extend(rows.kept_logprobs)
        if rows.prompt_logprobs and prompt_logprobs_from is not None:
            self._add_prompt_logprobs(prompt_logprobs_from, rows.prompt_logprobs)

    def _add_prompt_logprobs(self, start: int, values: Sequence[float | None]) -> None:
        gap = start - len(self._prompt_logprobs)
        if gap < 0:
            raise InternalError(f"logprobs of input position {start} were returned twice")
        self._prompt_logprobs.extend([math.nan] * gap)
        self._prompt_logprobs.extend(math.nan if value is None else value for value in values)

    def cut(self, tokens: int) -> None:
        """Forget the data of all tokens after the first `tokens`, of which none was sampled."""
        if self._rows > tokens:
            import numpy as np  # noqa: PLC0415

            self._experts = [np.concatenate(self._experts)[:tokens]]
            self._rows = tokens
        del self._prompt_logprobs[tokens:]

    def routed_experts(self) -> RoutedExperts | None:
        """Return the stored form of all rows, or None if there are none."""
        import numpy as np  # noqa: PLC0415

        if not self._experts:
            return None
        rows = np.concatenate(self._experts)
        largest = int(rows.max(initial=0))
        dtype = "uint8" if largest <= np.iinfo(np.uint8).max else "<i2"
        if largest > np.iinfo(np.int16).max:
            dtype = "<i4"
        count, layers, topk = rows.shape
        data = base64.b64encode(np.ascontiguousarray(rows, dtype=dtype).tobytes()).decode()
        return RoutedExperts(count, layers, topk, dtype, data)

    def sampling_mask(self) -> SamplingMask | None:
        """Return the stored form of all kept ids, or None if there are none."""
        if not self._kept:
            return None
        return SamplingMask(tuple(self._kept), tuple(self._offsets), tuple(self._kept_logprobs))

    def prompt_logprobs(self, length: int) -> NDArray[np.float32] | None:
        """Return logprobs of the harness's tokens, NaN elsewhere, float32 `[length]`."""
        import numpy as np  # noqa: PLC0415

        if not self._prompt_logprobs:
            return None
        whole = np.full(length, math.nan, dtype=np.float32)
        whole[: len(self._prompt_logprobs)] = self._prompt_logprobs
        return whole
