"""GenerationScheduler: one thread that samples for many calls, one step per call in rotation.

A step is a piece of the prompt, or one token, so a long prompt or turn delays no other call, and a
cancelled call ends before its next step. Calls are admitted in order of arrival, while the cache
has room. Each sequence is processed alone, without padding: a token's logprob does not depend on
the other calls.

What a branch of an episode has read stays in memory until its next call, which continues it. Idle
branches are dropped, the least recently used first, when others need the room.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from swe_rollout.engine.base import GenerateRequest
from swe_rollout.errors import EngineError
from swe_rollout.spec.policy import Sampling
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.turn import FinishReason

if TYPE_CHECKING:
    from numpy.typing import NDArray


PREFILL_TOKENS: Final = 512
"""Prompt tokens to read in one step."""
_WORD: Final = 2**64


class SequenceReader(Protocol):
    """Reads one sequence and remembers it."""

    def read(self, ids: NDArray[np.int32], /) -> NDArray[np.float32]:
        """Read at least one more id; return the logits `[vocabulary]` for the id after the last."""
        ...


@dataclass(frozen=True, slots=True)
class Sampled:
    """What a call sampled."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class _Read:
    """The state of an idle branch in memory."""

    ids: NDArray[np.int32]
    reader: SequenceReader


@dataclass(eq=False, slots=True)
class Call:
    """One call, from its arrival to its end."""

    request: GenerateRequest
    outcome: Future[Sampled] = field(default_factory=Future)
    """The outcome, set once by the scheduler's thread unless the call is cancelled before."""
    is_cancelled: bool = False
    reader: SequenceReader | None = None
    read: int = 0
    """Number of prompt ids read so far."""
    cached: int = 0
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    sampler: TokenSampler = field(init=False)

    def __post_init__(self) -> None:
        self.sampler = TokenSampler(self.request.sampling)

    def end(self, outcome: Sampled | EngineError) -> None:
        """Deliver the outcome, if the caller still waits and its event loop still runs."""
        with suppress(InvalidStateError, RuntimeError):
            if isinstance(outcome, EngineError):
                self.outcome.set_exception(outcome)
            else:
                self.outcome.set_result(outcome)

    @property
    def branch(self) -> tuple[EpisodeId, int]:
        """The episode and its branch."""
        return self.request.episode, self.request.branch

    @property
    def tokens(self) -> int:
        """The most tokens that the call can need in memory."""
        return len(self.request.input_ids) + self.request.max_new_tokens

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why the call is finished; None while it is not."""
        if self.ids and self.ids[-1] in self.request.stop_token_ids:
            return FinishReason.STOP
        if len(self.ids) >= self.request.max_new_tokens:
            return FinishReason.LENGTH
        return None


class GenerationScheduler:
    """Samples in its own thread. Its methods may be called from any other thread."""

    def __init__(self, new_reader: Callable[[], SequenceReader], *, cache_tokens: int) -> None:
        """Keep at most `cache_tokens` tokens in memory, unless a single call is longer."""
        self._new_reader = new_reader
        self._cache_tokens = cache_tokens
        self._waiting: deque[Call] = deque()
        self._running: list[Call] = []
        self._idle: OrderedDict[tuple[EpisodeId, int], _Read] = OrderedDict()
        self._wake = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="transformers", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread still samples."""
        return self._thread.is_alive()

    @property
    def cached_tokens(self) -> int:
        """Number of tokens of idle branches in memory."""
        with self._wake:
            return sum(len(each.ids) for each in self._idle.values())

    def submit(self, call: Call) -> None:
        """Queue a call. Raises EngineError when the scheduler is closed."""
        with self._wake:
            if self._is_closed or not self.is_alive:
                raise _closed()
            self._waiting.append(call)
            self._wake.notify()

    def release(self, episode: EpisodeId) -> None:
        """Drop the state of an episode."""
        with self._wake:
            for branch in [each for each in self._idle if each[0] == episode]:
                del self._idle[branch]

    def close(self) -> None:
        """End all calls and the thread; return after the current step."""
        with self._wake:
            self._is_closed = True
            self._wake.notify()
        self._thread.join()

    def _run(self) -> None:
        while self._admit():
            for call in tuple(self._running):
                self._step(call)
        self._end_all()

    def _admit(self) -> bool:
        """Wait for calls, and admit as many as there is room for; return False once closed."""
        with self._wake:
            self._wake.wait_for(lambda: self._is_closed or self._waiting or self._running)
            while self._waiting and not self._is_closed:
                call = self._waiting[0]
                if not (call.is_cancelled or self._make_room(call)):
                    break
                self._waiting.popleft()
                if not call.is_cancelled:
                    self._running.append(call)
                    self._resume(call)
            return not self._is_closed

    def _make_room(self, call: Call) -> bool:
        """Drop idle sequences, its own last, until the call fits; alone, it always fits."""
        used = sum(each.tokens for each in self._running) + call.tokens
        others = [each for each in self._idle if each != call.branch]
        idle = sum(len(self._idle[each].ids) for each in others)
        for branch in others:
            if used + idle <= self._cache_tokens:
                break
            idle -= len(self._idle.pop(branch).ids)
        return used + idle <= self._cache_tokens or not self._running

    def _resume(self, call: Call) -> None:
        """Reuse the state of the branch, if the prompt continues it."""
        kept = self._idle.pop(call.branch, None)
        if kept is None:
            return
        ids, known = call.request.input_ids.ids, len(kept.ids)
        # The last id is always read again: its logits are not kept.
        if known < len(ids) and np.array_equal(ids[:known], kept.ids):
            call.reader, call.read, call.cached = kept.reader, known, known

    def _step(self, call: Call) -> None:
        if call.is_cancelled:
            self._running.remove(call)
            return
        try:
            self._advance(call)
        except LogitsError as error:
            self._fail(call, EngineError("the model can't be sampled", why=str(error)))
        except Exception as error:  # noqa: BLE001 - whatever the library raises is this call's end
            why = f"{type(error).__name__}: {error}"[:500]
            fix = "lower spec.policy.transformers.cacheTokens if memory ran out"
            self._fail(call, EngineError("the model failed in a call", why=why, fix=fix))
        else:
            if (reason := call.finish_reason) is not None:
                self._finish(call, reason)

    def _advance(self, call: Call) -> None:
        reader = call.reader = call.reader or self._new_reader()
        prompt = call.request.input_ids.ids
        if call.read < len(prompt):
            piece = prompt[call.read : call.read + PREFILL_TOKENS]
            call.read += len(piece)
        else:
            piece = np.array(call.ids[-1:], dtype=np.int32)
        logits = reader.read(piece)
        if call.read == len(prompt):
            draw = call.sampler.draw(logits, len(prompt) + len(call.ids))
            call.ids.append(draw.token_id)
            call.logprobs.append(draw.logprob)

    def _finish(self, call: Call, reason: FinishReason) -> None:
        self._running.remove(call)
        sampled = Sampled(tuple(call.ids), tuple(call.logprobs), reason, call.cached)
        with self._wake:
            if not call.is_cancelled and call.reader is not None:
                # The last id was drawn but not read.
                drawn = np.array(call.ids[:-1], dtype=np.int32)
                read = np.concatenate((call.request.input_ids.ids, drawn))
                self._idle[call.branch] = _Read(read, call.reader)
        call.end(sampled)

    def _fail(self, call: Call, error: EngineError) -> None:
        self._running.remove(call)
        with self._wake:
            # This may be for lack of memory.
            self._idle.clear()
        call.end(error)

    def _end_all(self) -> None:
        with self._wake:
            ended: Iterable[Call] = (*self._running, *self._waiting)
            self._running.clear()
            self._waiting.clear()
            self._idle.clear()
        for call in ended:
            if not call.is_cancelled:
                call.end(_closed())


def _closed() -> EngineError:
    return EngineError("the engine is closed")


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
        # Without a seed from the job, nobody can repeat a call.
        self._seed = secrets.randbits(64) if sampling.seed is None else sampling.seed % _WORD

    def draw(self, logits: NDArray[np.float32], position: int) -> Draw:
        """Draw the id at `position` of its sequence, from logits `[vocabulary]`.

        With a seed, the draw depends only on seed, position and logits: a turn that is continued
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
        """Return the ids that may be drawn, most likely first; None for all ids."""
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
    """Return the logprob of every id at a temperature, as float64; 0 scales like 1.

    Raises LogitsError.
    """
    highest = logits.max(initial=-np.inf)
    if not np.isfinite(highest):
        raise LogitsError("the model's logits are NaN or infinite")
    # Subtract the maximum first, so that no temperature is too low for the division.
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
