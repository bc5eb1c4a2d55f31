"""TokenLog: the tokens of one branch that the policy read and sampled, in append-only arrays.

Invariants, checked on every append and tested with random segmentations:

- `token_ids`, `loss_mask` and `logprobs` have the same length, and segments cover it without gaps;
- the mask is 1 only for ids the engine sampled, and each of those has a finite logprob;
- the request of turn k+1 is the log after turn k plus the delta, bit for bit.

Every append costs O(new tokens). numpy is imported where it is used; reading records does without.
"""

from __future__ import annotations

import hashlib
import math
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

from swe_rollout.errors import InternalError
from swe_rollout.tokens.replay import Recording, Replay, ReplayRequest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


_NAN = array("f", [math.nan])


class SegmentKind(StrEnum):
    """The writer of a run of tokens."""

    PROMPT = "prompt"
    """The first rendering: system, tools, task."""
    SAMPLED = "sampled"
    """The policy, as reported by the engine."""
    DELTA = "delta"
    """The harness: the boundary after a turn, tool results, the next generation prompt."""


@dataclass(frozen=True, slots=True)
class SamplingUsed:
    """The distribution from which tokens were drawn. Logprobs are under the model at `temperature`,
    before the other parameters truncate the distribution.
    """

    temperature: float
    top_p: float
    top_k: int
    """-1 means the whole vocabulary."""
    min_p: float


@dataclass(frozen=True, slots=True)
class Segment:
    """A run `[start, end)` of tokens, its turn, and the weights and parameters that sampled it."""

    kind: SegmentKind
    start: int
    end: int
    turn: int
    weight_version: str | None = None
    sampling: SamplingUsed | None = None
    """The parameters of a sampled run. Absent from the stored form if None, as in records from
    before the field was added."""


@dataclass(frozen=True, slots=True)
class RequestProof:
    """Proof of the prompt ids of one request: their number, and their SHA-256 as int32 LE.

    A reader compares it with `sha256(int32le(token_ids[:length]))` of the trajectory's own ids.
    """

    length: int
    sha256: str


@dataclass(frozen=True, slots=True)
class InputIds:
    """The frozen ids of one request, as numbers and as the text of the HTTP request body.

    Those of a log are views of it, so that a long prompt is not copied in each turn.
    """

    ids: NDArray[np.int32] = field(compare=False)
    """int32 `[n]`, read-only."""
    text: NDArray[np.uint8] = field(compare=False)
    """The ids as comma-separated decimal numbers: a JSON array without its brackets."""
    proof: RequestProof

    @classmethod
    def of(cls, ids: Sequence[int]) -> InputIds:
        """Build an input from ids. `TokenLog.input_ids` is faster for the ids of a log."""
        log = TokenLog()
        log.append_prompt(ids)
        return log.input_ids()

    def __len__(self) -> int:
        return self.proof.length

    def tolist(self) -> list[int]:
        """Return the ids as Python integers; O(n)."""
        ids: list[int] = self.ids.tolist()
        return ids


class TokenLog:
    """The tokens of one branch of an episode. Append-only; each append costs O(new tokens)."""

    __slots__ = ("_ids", "_is_closed", "_logprobs", "_mask", "_segments", "_sha", "_text", "replay")

    def __init__(self) -> None:
        self._ids = _Growing("<i4")
        self._mask = bytearray()
        self._logprobs = array("f")
        self._segments: list[Segment] = []
        self._sha = hashlib.sha256()
        self._text = _Growing("u1")
        self._is_closed = False
        self.replay = Replay()
        """Data the engine returned to replay the sampling."""

    def __len__(self) -> int:
        return len(self._mask)

    def append_prompt(self, ids: Sequence[int]) -> None:
        """Append the first rendering; allowed once, before anything else."""
        if self._segments:
            raise InternalError("the prompt is rendered once, before the first turn")
        self._append(SegmentKind.PROMPT, ids, _NAN * len(ids), 0)

    def append_delta(self, ids: Sequence[int], *, turn: int) -> None:
        """Append the tokens that the harness writes before `turn`, with mask 0."""
        self._append(SegmentKind.DELTA, ids, _NAN * len(ids), turn)

    def append_sampled(
        self,
        ids: Sequence[int],
        logprobs: Sequence[float],
        *,
        turn: int,
        weight_version: str | None = None,
        sampling: SamplingUsed | None = None,
    ) -> None:
        """Append sampled ids, with mask 1 and a finite logprob each."""
        if len(ids) != len(logprobs):
            raise InternalError(f"{len(ids)} sampled ids but {len(logprobs)} logprobs")
        if not all(map(math.isfinite, logprobs)):
            raise InternalError("a sampled id has no finite logprob")
        values = array("f", logprobs)
        self._append(
            SegmentKind.SAMPLED,
            ids,
            values,
            turn,
            weight_version=weight_version,
            sampling=sampling,
        )

    def _append(
        self,
        kind: SegmentKind,
        ids: Sequence[int],
        logprobs: array[float],
        turn: int,
        *,
        weight_version: str | None = None,
        sampling: SamplingUsed | None = None,
    ) -> None:
        if self._is_closed:
            raise InternalError("a branch that was closed is appended to")
        if not ids:
            return
        start, new = len(self._mask), array("i", ids)
        self._mask.extend((b"\1" if kind is SegmentKind.SAMPLED else b"\0") * len(new))
        self._logprobs.extend(logprobs)
        self._segments.append(
            Segment(kind, start, start + len(new), turn, weight_version, sampling)
        )
        self._text.extend(b"," + encode_ids(ids) if start else encode_ids(ids))
        if sys.byteorder == "big":
            new.byteswap()
        data = new.tobytes()
        self._ids.extend(data)
        self._sha.update(data)

    def close(self) -> None:
        """End the log: allow no more appends, and free memory that only requests need."""
        self._is_closed = True
        self._text = _Growing("u1")

    def request(self) -> RequestProof:
        """Return the proof of the next request, which is the whole log so far."""
        return RequestProof(len(self), self._sha.hexdigest())

    def input_ids(self) -> InputIds:
        """Return the next request: the whole log so far."""
        return InputIds(self._ids.view(), self._text.view(), self.request())

    def replay_request(self, recording: Recording) -> ReplayRequest:
        """Return the replay data to request in the next call: everything still missing."""
        last = self._segments[-1]
        is_new = last.kind is SegmentKind.DELTA and self.replay.prompt_positions <= last.start
        has_new_prompt = recording.prompt_logprobs and is_new
        return ReplayRequest(
            experts=recording.experts,
            experts_from=self.replay.expert_rows,
            sampling_mask=recording.sampling_mask,
            prompt_logprobs_from=last.start if has_new_prompt else None,
        )

    def last_id(self) -> int:
        return int(self._ids.view()[-1])

    @property
    def ids(self) -> list[int]:
        """All ids so far; O(n)."""
        ids: list[int] = self._ids.view().tolist()
        return ids

    @property
    def loss_mask(self) -> NDArray[np.uint8]:
        """1 where the policy sampled, uint8 `[n]`."""
        import numpy as np  # noqa: PLC0415

        return np.frombuffer(bytes(self._mask), dtype=np.uint8)

    @property
    def logprobs(self) -> NDArray[np.float32]:
        """Logprob of each sampled id in nats, NaN elsewhere, float32 `[n]`."""
        import numpy as np  # noqa: PLC0415

        return np.array(self._logprobs, dtype=np.float32)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All runs, in order, without gaps."""
        return tuple(self._segments)

    @property
    def sampled(self) -> int:
        """Number of tokens the policy sampled."""
        return self._mask.count(1)


class _Growing:
    """An array that grows at its end; earlier views of it stay as they are."""

    __slots__ = ("_bytes", "_kind", "_size")

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._bytes = memoryview(bytearray())
        self._size = 0

    def extend(self, new: bytes) -> None:
        """Append values as their bytes."""
        start, self._size = self._size, self._size + len(new)
        if self._size > len(self._bytes):
            # A new one, because views of the old one can't be moved.
            grown = memoryview(bytearray(self._size * 3 // 2))
            grown[:start] = self._bytes[:start]
            self._bytes = grown
        self._bytes[start : self._size] = new

    def view(self) -> NDArray[Any]:
        """Return all of it so far, read-only."""
        import numpy as np  # noqa: PLC0415

        return np.frombuffer(self._bytes[: self._size].toreadonly(), self._kind)


def nullable(logprobs: NDArray[np.float32]) -> tuple[float | None, ...]:
    """Convert a logprob column for JSON, in which NaN becomes null."""
    return tuple(None if math.isnan(value) else value for value in logprobs.tolist())


def encode_ids(ids: Sequence[int]) -> bytes:
    """Encode ids for the request body: comma-separated decimal numbers."""
    return msgspec.json.encode(list(ids))[1:-1]
