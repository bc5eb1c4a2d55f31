"""TokenLog: what the policy read and sampled, as flat append-only arrays.

Invariants (checked on every append, tested with random segmentations):

- `token_ids`, `loss_mask` and `logprobs` have one length, and segments cover it without gaps;
- the mask is 1 only for ids the engine sampled, and each of those has a finite logprob;
- the request of turn k+1 is the log after turn k plus the delta, bit for bit.
"""

from __future__ import annotations

import hashlib
import math
from array import array
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from swe_rollout.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class SegmentKind(StrEnum):
    """Who wrote a run of tokens."""

    PROMPT = "prompt"
    """The first rendering: system, tools, task."""
    SAMPLED = "sampled"
    """The policy, by the engine's own account."""
    DELTA = "delta"
    """The harness: the boundary after a turn, tool results, the next generation prompt."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One run `[start, end)` of tokens, the turn it belongs to, and the weights that sampled it."""

    kind: SegmentKind
    start: int
    end: int
    turn: int
    weight_version: str | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """The prompt ids of one request, as proof: how many, and the SHA-256 of them as int32 LE.

    A reader checks `sha256(int32le(token_ids[:length]))` against the trajectory's own ids.
    """

    length: int
    sha256: str


class TokenLog:
    """The token record of one episode; grows only, O(new tokens) for each append."""

    __slots__ = ("_ids", "_logprobs", "_mask", "_segments", "_sha")

    def __init__(self) -> None:
        self._ids = array("i")
        self._mask = bytearray()
        self._logprobs = array("f")
        self._segments: list[Segment] = []
        self._sha = hashlib.sha256()

    def __len__(self) -> int:
        """Tokens so far."""
        return len(self._ids)

    def append_prompt(self, ids: Sequence[int]) -> None:
        """Append the first rendering; once, before anything else."""
        if self._segments:
            raise InternalError("the prompt is rendered once, before the first turn")
        self._append(SegmentKind.PROMPT, ids, [math.nan] * len(ids), 0, None)

    def append_delta(self, ids: Sequence[int], *, turn: int) -> None:
        """Append what the harness says before `turn`: mask 0."""
        self._append(SegmentKind.DELTA, ids, [math.nan] * len(ids), turn, None)

    def append_sampled(
        self,
        ids: Sequence[int],
        logprobs: Sequence[float],
        *,
        turn: int,
        weight_version: str | None = None,
    ) -> None:
        """Append what the engine sampled: mask 1, each id with a finite logprob."""
        if len(ids) != len(logprobs):
            raise InternalError(f"{len(ids)} sampled ids but {len(logprobs)} logprobs")
        if not all(map(math.isfinite, logprobs)):
            raise InternalError("a sampled id has no finite logprob")
        self._append(SegmentKind.SAMPLED, ids, logprobs, turn, weight_version)

    def _append(
        self,
        kind: SegmentKind,
        ids: Sequence[int],
        logprobs: Sequence[float],
        turn: int,
        weight_version: str | None,
    ) -> None:
        if not ids:
            return
        new = array("i", ids)
        start = len(self._ids)
        self._ids.extend(new)
        self._mask.extend((b"\1" if kind is SegmentKind.SAMPLED else b"\0") * len(new))
        self._logprobs.extend(logprobs)
        self._segments.append(Segment(kind, start, start + len(new), turn, weight_version))
        self._sha.update(np.asarray(new, dtype="<i4").tobytes())

    def request(self) -> Request:
        """The proof of what the next request must be: everything so far."""
        return Request(len(self._ids), self._sha.hexdigest())

    def assert_request(self, ids: Sequence[int]) -> Request:
        """The proof of `ids`, which are about to be sent; they must be this log, bit for bit."""
        sent = Request(len(ids), hashlib.sha256(np.asarray(ids, dtype="<i4").tobytes()).hexdigest())
        if sent != self.request():
            raise InternalError(
                "a request is not the token log so far",
                why=f"{sent.length} ids are to be sent, the log holds {len(self._ids)}",
                fix="report this: the prefix property is broken",
            )
        return sent

    @property
    def ids(self) -> list[int]:
        """All ids so far, as a request wants them."""
        return self._ids.tolist()

    def array(self) -> NDArray[np.int32]:
        """All ids, int32 `[n]`."""
        return np.array(self._ids, dtype=np.int32)

    @property
    def loss_mask(self) -> NDArray[np.uint8]:
        """1 where the policy sampled, uint8 `[n]`."""
        return np.frombuffer(bytes(self._mask), dtype=np.uint8)

    @property
    def logprobs(self) -> NDArray[np.float32]:
        """Logprob of each sampled id in nats, NaN elsewhere, float32 `[n]`."""
        return np.array(self._logprobs, dtype=np.float32)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The runs, in order, without gaps."""
        return tuple(self._segments)

    @property
    def sampled(self) -> int:
        """How many tokens the policy sampled."""
        return self._mask.count(1)
