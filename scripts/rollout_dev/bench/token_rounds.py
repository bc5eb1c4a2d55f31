"""Rounds of `bench tokens`: whole conversations of one subject after the other, repeated.

The first round is not timed: it counts prefix breaks. In the others each turn is timed.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rollout_dev.bench.workload import FIRST, TOOLS, SampledTurn, Workload
from swe_rollout.agent.renderer import Renderer
from swe_rollout.testing.tokens.subjects import TokenSubject
from swe_rollout.tokens.log import InputIds, TokenLog

_P99 = 0.99


class Candidate(Protocol):
    """The tokens of one conversation."""

    def begin(self) -> None:
        """Make the first request."""
        ...

    def turn(self, sampled: SampledTurn, result: str) -> None:
        """Append a turn and the result of its call, and make the next request. This is timed."""
        ...

    def request(self) -> Sequence[int]:
        """Return the ids of the latest request."""
        ...


class Ours(Candidate):
    """The token work of an agent in a turn: log, delta, proof, request."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self._log = TokenLog()
        self._turn = 0
        self._request = InputIds.of([])

    def begin(self) -> None:
        self._log.append_prompt(self._renderer.prompt(FIRST, TOOLS).ids)
        self._request = self._log.input_ids()

    def turn(self, sampled: SampledTurn, result: str) -> None:
        log = self._log
        log.append_sampled(sampled.ids, sampled.logprobs, turn=self._turn, weight_version="v1")
        self._turn += 1
        delta = self._renderer.delta(
            log.last_id(), sampled.calls, results=[result], tools=TOOLS, open_reasoning=False
        )
        log.append_delta(delta.ids, turn=self._turn)
        log.request()
        self._request = log.input_ids()

    def request(self) -> Sequence[int]:
        return self._request.tolist()


class Other(Candidate):
    """Any other subject, by the interface of conformance."""

    def __init__(self, subject: TokenSubject) -> None:
        self._subject = subject
        self._request: Sequence[int] = ()

    def begin(self) -> None:
        self._request = self._subject.start(FIRST, TOOLS)

    def turn(self, sampled: SampledTurn, result: str) -> None:
        subject = self._subject
        subject.add_turn(sampled.ids, sampled.logprobs, text=sampled.text, calls=sampled.calls)
        self._request = subject.add_results([result])

    def request(self) -> Sequence[int]:
        # The list may be the subject's own.
        return self._request


@dataclass(slots=True)
class Samples:
    """The samples of one subject at one number of turns."""

    rounds: list[list[float]] = field(default_factory=list)
    """Seconds of each turn."""
    breaks: int = 0
    tokens: int = 0
    """Tokens of the last request."""

    @property
    def p50_ms(self) -> float:
        """Median of the rounds' medians."""
        return 1e3 * statistics.median(map(statistics.median, self.rounds))

    def ratio_to(self, other: Samples) -> float:
        """Median over rounds of the ratio to another subject, which ran in the same minute."""
        pairs = zip(self.rounds, other.rounds, strict=True)
        medians = (statistics.median(own) / statistics.median(theirs) for own, theirs in pairs)
        return statistics.median(medians)

    @property
    def mean_ms(self) -> float:
        """Median of the rounds' means."""
        return 1e3 * statistics.median(map(statistics.fmean, self.rounds))

    @property
    def p99_ms(self) -> float:
        """Median of the rounds' 99th percentiles."""
        return 1e3 * statistics.median(map(_p99, self.rounds))


def _p99(seconds: Sequence[float]) -> float:
    return sorted(seconds)[min(len(seconds) - 1, int(_P99 * len(seconds)))]


@dataclass(frozen=True, slots=True)
class Entrant:
    """A subject: its name, and a factory of conversations."""

    name: str
    start: Callable[[], Candidate]


def check(entrant: Entrant, turns: Sequence[SampledTurn], work: Workload, samples: Samples) -> None:
    """Play one conversation to count breaks and to warm up."""
    candidate = entrant.start()
    candidate.begin()
    for sampled in turns:
        expected = [*candidate.request(), *sampled.ids]
        candidate.turn(sampled, work.result)
        samples.breaks += list(candidate.request()[: len(expected)]) != expected
    samples.tokens = len(candidate.request())


def timed(entrant: Entrant, turns: Sequence[SampledTurn], work: Workload, samples: Samples) -> None:
    """Play one conversation and time each turn."""
    candidate = entrant.start()
    candidate.begin()
    gc.collect()
    seconds: list[float] = []
    for sampled in turns:
        began = time.perf_counter()
        candidate.turn(sampled, work.result)
        seconds.append(time.perf_counter() - began)
    samples.rounds.append(seconds)


def parse_ms(work: Workload, turns: Sequence[SampledTurn]) -> float:
    """Return the median time to parse the calls of a turn from its ids."""
    seconds: list[float] = []
    for sampled in turns:
        began = time.perf_counter()
        work.parse(sampled.ids)
        seconds.append(time.perf_counter() - began)
    return 1e3 * statistics.median(seconds)
